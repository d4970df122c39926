"""Architectures with random weights: transformers' language and sound, timm's pictures, recurrent.

No weights can be downloaded: models are made from configurations, small ones or of real widths.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="make test-torch-models")
if importlib.util.find_spec("timm") is None:  # its import needs `without_torchvision`
    pytest.skip("make test-torch-models", allow_module_level=True)


@dataclass(frozen=True)
class Scale:
    """How large a model is."""

    width: int
    heads: int
    inner: int
    """Of the feed-forward layers."""
    words: int
    picture: int
    patch: int
    frames: int
    """Of a sound, behind the convolutions of Whisper."""
    layers: int = 2

    @property
    def text(self):
        """What most configurations of transformers call these."""
        return {
            "vocab_size": self.words, "hidden_size": self.width, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "intermediate_size": self.inner,
        }  # fmt: skip


SMALL = Scale(32, 4, 64, 100, 32, 8, 24)
REAL = Scale(768, 12, 3072, 30522, 224, 16, 1500)


class Result(nn.Module):
    """One result of a model."""

    def __init__(self, model, take):
        super().__init__()
        self.model, self.take = model, take

    def forward(self, *args):
        return self.take(self.model, *args)


@dataclass(frozen=True)
class Architecture:
    make: Callable[[Scale], nn.Module]
    arguments: Callable[..., tuple[torch.Tensor, ...]]
    """Of a scale and sizes."""
    dims: tuple[dict[int, Any], ...]
    """The dynamic dimensions of every argument."""
    sizes: tuple[tuple[int, ...], ...]
    attention: int = 0
    """How many attention kernels the two layers have."""


# -- arguments ----------------------------------------------------------------------------------


def words(scale, b, s):
    return (torch.randint(0, scale.words, (b, s)),)


def masked(scale, b, s):
    mask = torch.ones(b, s, dtype=torch.int64)
    mask[0, (s + 1) // 2 :] = 0
    return (*words(scale, b, s), mask)


def attending(scale, b, s, t):
    """Words, and the features that a decoder attends to."""
    return (*words(scale, b, s), torch.randn(b, t, scale.width))


def cached(kv_heads):
    """Words, and the keys and values of earlier ones for two layers."""

    def arguments(scale, b, s, t):
        heads = kv_heads or scale.heads
        shape = (b, heads, t, scale.width // scale.heads)
        return (*words(scale, b, s), *(torch.randn(shape) for _ in range(2 * scale.layers)))

    return arguments


def picture(scale, b, h=None, w=None):
    return (torch.randn(b, 3, h or scale.picture, w or scale.picture),)


# -- transformers -------------------------------------------------------------------------------


def _encoder(scale, model, config):
    """An encoder of words and their mask, without dropout."""
    given = config(**scale.text, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Result(
        model(given, add_pooling_layer=False),
        lambda m, i, a: m(input_ids=i, attention_mask=a).last_hidden_state,
    )


def bert(scale):
    return _encoder(scale, transformers.BertModel, transformers.BertConfig)


def distilbert(scale):
    config = transformers.DistilBertConfig(
        vocab_size=scale.words, dim=scale.width, n_layers=scale.layers, n_heads=scale.heads,
        hidden_dim=scale.inner, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    model = transformers.DistilBertModel(config)
    return Result(model, lambda m, i, a: m(input_ids=i, attention_mask=a).last_hidden_state)


def roberta(scale):
    return _encoder(scale, transformers.RobertaModel, transformers.RobertaConfig)


def gpt2_model(scale):
    config = transformers.GPT2Config(
        vocab_size=scale.words, n_embd=scale.width, n_layer=scale.layers, n_head=scale.heads,
        n_inner=scale.inner, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama_model(scale):
    config = transformers.LlamaConfig(**scale.text, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config)


def logits(model):
    return Result(model, lambda m, i: m(input_ids=i, use_cache=False).logits)


def decoding(model):
    """The logits, and the keys and values of all words, earlier ones first."""

    def take(m, ids, *cache):
        pairs = [(cache[k], cache[k + 1]) for k in range(0, len(cache), 2)]
        found = m(input_ids=ids, past_key_values=transformers.DynamicCache(pairs), use_cache=True)
        layers = found.past_key_values.layers
        return found.logits, *(x for layer in layers for x in (layer.keys, layer.values))

    return Result(model, take)


def mixtral(scale):
    config = transformers.MixtralConfig(
        **scale.text, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=None, experts_implementation="batched_mm",
    )  # fmt: skip
    return logits(transformers.MixtralForCausalLM(config))


def t5_config(scale):
    return transformers.T5Config(
        vocab_size=scale.words, d_model=scale.width, d_kv=scale.width // scale.heads,
        d_ff=scale.inner, num_layers=scale.layers, num_heads=scale.heads, dropout_rate=0.0,
    )  # fmt: skip


def t5_encoder(scale):
    model = transformers.T5EncoderModel(t5_config(scale))
    return Result(model, lambda m, i: m(input_ids=i).last_hidden_state)


def t5_decoder(scale):
    model = transformers.T5Model(t5_config(scale)).decoder
    return Result(
        model,
        lambda m, i, h: m(input_ids=i, encoder_hidden_states=h, use_cache=False).last_hidden_state,
    )


def whisper(scale):
    config = transformers.WhisperConfig(
        vocab_size=scale.words, d_model=scale.width, encoder_layers=scale.layers,
        decoder_layers=scale.layers, encoder_attention_heads=scale.heads,
        decoder_attention_heads=scale.heads, encoder_ffn_dim=scale.inner,
        decoder_ffn_dim=scale.inner, max_source_positions=scale.frames, num_mel_bins=20,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    return transformers.WhisperModel(config)


def whisper_encoder(scale):
    return Result(whisper(scale).encoder, lambda m, x: m(x).last_hidden_state)


def whisper_decoder(scale):
    return Result(
        whisper(scale).decoder,
        lambda m, i, h: m(input_ids=i, encoder_hidden_states=h, use_cache=False).last_hidden_state,
    )


def vit(scale):
    config = transformers.ViTConfig(
        hidden_size=scale.width, num_hidden_layers=scale.layers, num_attention_heads=scale.heads,
        intermediate_size=scale.inner, image_size=scale.picture, patch_size=scale.patch,
    )  # fmt: skip
    model = transformers.ViTModel(config, add_pooling_layer=False)
    return Result(model, lambda m, x: m(pixel_values=x).last_hidden_state)


def resnet(scale):
    widths = [8, 16] if scale is SMALL else [256, 512]
    config = transformers.ResNetConfig(
        embedding_size=widths[0], hidden_sizes=widths, depths=[1, 1], layer_type="basic"
    )
    return Result(transformers.ResNetModel(config), lambda m, x: m(pixel_values=x).pooler_output)


# -- timm ---------------------------------------------------------------------------------------


def timm_model(name, **small):
    """A model of timm, which imports torchvision: names stand for it."""

    def make(scale):
        from tests.torch.torchvision_names import without_torchvision

        with without_torchvision():
            import timm

            return timm.create_model(name, pretrained=False, **(small if scale is SMALL else {}))

    return make


class Lstm(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layers = nn.LSTM(scale.width, scale.width, 2, batch_first=True)

    def forward(self, x):
        found, (state, cell) = self.layers(x)
        return found, state, cell


B, S, T = Dim("b", max=64), Dim("s", min=2, max=128), Dim("t", max=128)
TEXTS = ((2, 7), (1, 5), (3, 11), (5, 33), (4, 16))
PAIRS = ((2, 7, 9), (1, 5, 3), (3, 11, 1), (5, 17, 33), (4, 13, 16))
STEPS = ((2, 3, 9), (1, 2, 3), (3, 5, 1), (5, 2, 33), (4, 7, 16))
BATCHES = ((2,), (1,), (5,), (7,), (4,))
TEXT, ATTENDED = ({0: B, 1: S},), ({0: B, 1: S}, {0: B, 1: T})
STATE = ({0: B, 1: S}, *[{0: B, 2: T}] * 4)
IMAGES = ({0: B, 2: Dim("h", min=33), 3: Dim("w", min=33)},)
IMAGE_SIZES = ((2, 64, 96), (1, 48, 33), (5, 64, 37), (3, 41, 53), (4, 96, 64))

MODELS = {
    "bert": Architecture(bert, masked, TEXT * 2, TEXTS, 2),
    "distilbert": Architecture(distilbert, masked, TEXT * 2, TEXTS, 2),
    "roberta": Architecture(roberta, masked, TEXT * 2, TEXTS, 2),
    "gpt2": Architecture(lambda s: logits(gpt2_model(s)), words, TEXT, TEXTS, 2),
    "gpt2 decoding": Architecture(lambda s: decoding(gpt2_model(s)), cached(0), STATE, STEPS, 2),
    "llama": Architecture(lambda s: logits(llama_model(s)), words, TEXT, TEXTS, 2),
    "llama decoding": Architecture(lambda s: decoding(llama_model(s)), cached(2), STATE, STEPS, 2),
    "mixtral": Architecture(mixtral, words, TEXT, TEXTS, 2),
    "t5 encoder": Architecture(t5_encoder, words, TEXT, TEXTS, 2),
    "t5 decoder": Architecture(t5_decoder, attending, ATTENDED, PAIRS, 4),
    "whisper encoder": Architecture(
        whisper_encoder, lambda s, b: (torch.randn(b, 20, 2 * s.frames),), ({0: B},), BATCHES, 2
    ),
    "whisper decoder": Architecture(whisper_decoder, attending, ATTENDED, PAIRS, 4),
    "vit": Architecture(vit, picture, ({0: B},), BATCHES, 2),
    "resnet": Architecture(resnet, picture, IMAGES, IMAGE_SIZES),
    "timm resnet18": Architecture(
        timm_model("resnet18", channels=(8, 16, 32, 64), stem_width=8),
        picture, IMAGES, IMAGE_SIZES,
    ),
    "timm mobilenetv3": Architecture(
        timm_model("mobilenetv3_small_050"), picture, IMAGES, IMAGE_SIZES
    ),
    "timm vit_tiny": Architecture(
        timm_model("vit_tiny_patch16_224", img_size=32, depth=2), picture, ({0: B},), BATCHES, 2
    ),
    "timm convnext": Architecture(timm_model("convnext_atto"), picture, ({0: B},), BATCHES),
    "lstm": Architecture(
        Lstm, lambda s, b: (torch.randn(b, 11, s.width),), ({0: B},), BATCHES
    ),
}  # fmt: skip
