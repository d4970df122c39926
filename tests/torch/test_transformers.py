"""Architectures of transformers with random weights: exported, and trained through the backend."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `torch`: make test-torch")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="pip install transformers==5.23.0")

from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402

import shlo_disc.torch  # noqa: E402
from tests.torch.test_backend import assert_trains_as_eager  # noqa: E402
from tests.torch.test_exported import assert_as_accurate  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]

WORDS = 100
TEXT = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
B, S = Dim("b", max=64), Dim("s", min=2, max=128)


class Of(nn.Module):
    """One result of a model."""

    def __init__(self, model, take):
        super().__init__()
        self.model, self.take = model, take

    def forward(self, *args):
        return self.take(self.model, *args)


def words(b, s):
    return (torch.randint(0, WORDS, (b, s)),)


def masked(b, s):
    mask = torch.ones(b, s, dtype=torch.int64)
    mask[0, (s + 1) // 2 :] = 0
    return (*words(b, s), mask)


def bert():
    config = transformers.BertConfig(
        **TEXT, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    return Of(model, lambda m, i, a: m(input_ids=i, attention_mask=a).last_hidden_state)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    return Of(model, lambda m, i: m(input_ids=i, use_cache=False).logits)


def llama():
    config = transformers.LlamaConfig(**TEXT, intermediate_size=64, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config)
    return Of(model, lambda m, i: m(input_ids=i, use_cache=False).logits)


def t5():
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0
    )
    model = transformers.T5EncoderModel(config)
    return Of(model, lambda m, i: m(input_ids=i).last_hidden_state)


def vit():
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=32, patch_size=8,
    )  # fmt: skip
    model = transformers.ViTModel(config, add_pooling_layer=False)
    return Of(model, lambda m, x: m(pixel_values=x).last_hidden_state)


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return Of(transformers.ResNetModel(config), lambda m, x: m(pixel_values=x).pooler_output)


TEXTS = ((2, 7), (1, 5), (3, 11), (5, 33), (4, 16))
PICTURE = ({0: B},)
MODELS = {
    "bert": (bert, masked, ({0: B, 1: S}, {0: B, 1: S}), TEXTS),
    "gpt2": (gpt2, words, ({0: B, 1: S},), TEXTS),
    "llama": (llama, words, ({0: B, 1: S},), TEXTS),
    "t5": (t5, words, ({0: B, 1: S},), TEXTS),
    "vit": (vit, lambda b: (torch.randn(b, 3, 32, 32),), PICTURE, ((2,), (1,), (5,), (7,), (4,))),
    "resnet": (
        resnet, lambda b, h, w: (torch.randn(b, 3, h, w),),
        ({0: B, 2: Dim("h", min=16), 3: Dim("w", min=16)},),
        ((2, 32, 40), (1, 48, 33), (5, 64, 31), (4, 16, 24)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_as_accurate_as_pytorch(name):
    make, arguments, dims, sizes = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        program = export(model, arguments(*sizes[0]), dynamic_shapes=(dims,))
        run = shlo_disc.torch.compile(program)
        kinds = [use.kind for use in run.executable.host.uses]
        assert kinds.count("attention") == {"resnet": 0, "t5": 1}.get(name, 2)
        for own in sizes:
            args = arguments(*own)
            assert_as_accurate(model, args, run(*args))


@pytest.mark.parametrize("name", MODELS)
def test_training_compiles_one_forward_and_one_backward(name):
    torch._dynamo.reset()
    make, arguments, _, sizes = MODELS[name]
    torch.manual_seed(0)
    before = {graph.number for graph in shlo_disc.torch.compilations()}
    batches = [arguments(*own) for own in sizes[2:]]  # Dynamo compiles sizes of 1 apart
    assert_trains_as_eager(make().train(), batches, tolerance=1e-4)
    made = [g for g in shlo_disc.torch.compilations() if g.number not in before]
    assert [graph.kind for graph in made] == ["forward", "backward"]
    torch._dynamo.reset()
