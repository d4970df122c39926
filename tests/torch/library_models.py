"""Models of PyTorch's libraries beside eager mode: forward, ten steps of training, export.

python -m tests.torch.library_models > docs/torch-models.md
python -m tests.torch.library_models BERT GAT           what these do

Small ones with random weights, made from configurations: none can be downloaded.
"""

from __future__ import annotations

import copy
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc.torch
from tests.torch.architectures import SMALL as SCALE
from tests.torch.architectures import Result, timm_model, transformers

PAGE = Path("docs/torch-models.md")

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Model:
    """A model of a library."""

    library: str
    make: Callable[[], nn.Module]
    arguments: Callable[..., Tensors]
    """Of sizes."""
    sizes: tuple[tuple[int, ...], ...]
    """Those of the first call differ from each other, and from numbers of channels."""
    dims: tuple[set[int], ...]
    """The dynamic dimensions of every argument; all of them but those that weights determine."""
    tolerance: float = 1e-4
    counts: tuple[int, int, int] | None = None
    """Graphs of inference, graph breaks, operations that PyTorch runs; None: not counted yet."""
    exports: bool = True
    """Whether PyTorch exports it with dynamic sizes."""


# -- arguments ----------------------------------------------------------------------------------

WORDS = 50
WIDTH, HEADS, INNER = 32, 4, 48
TEXT = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2,
    "num_attention_heads": HEADS, "intermediate_size": INNER,
}  # fmt: skip
LAYERS = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS,
          "intermediate_size": INNER}  # fmt: skip
CODER = {
    "d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
}  # fmt: skip
TEXTS = ((3, 7), (2, 13), (5, 9))
BATCHES = ((2,), (3,), (5,))
PICTURES = ((2, 64, 96), (3, 96, 64), (5, 32, 64))
LARGER = ((2, 64, 96), (3, 96, 64), (5, 128, 160))
"""For a stride of 32: PyTorch exports no maps of one pixel together with larger ones."""
MAPS = ((5, 24, 32), (3, 16, 8), (2, 8, 24))
SOUNDS = ((3, 1200), (2, 1523), (5, 900))
GRAPHS = ((19, 40), (23, 57), (9, 31))


def words(b: int, s: int) -> Tensors:
    return (torch.randint(3, WORDS, (b, s)),)


def masked(b: int, s: int) -> Tensors:
    mask = torch.ones(b, s, dtype=torch.int64)
    mask[0, (s + 1) // 2 :] = 0
    return (*words(b, s), mask)


def pairs(b: int, s: int) -> Tensors:
    return (*words(b, s), *words(b, s + 2))


def picture(b: int, h: int = 32, w: int = 32) -> Tensors:
    return (torch.randn(b, 3, h, w),)


def sound(b: int, s: int) -> Tensors:
    return (torch.randn(b, s),)


def channels(count: int) -> Callable[..., Tensors]:
    return lambda b, *sizes: (torch.randn(b, count, *sizes),)


def graph(nodes: int, edges: int) -> Tensors:
    return torch.randn(nodes, 8), torch.randint(0, nodes, (2, edges))


# -- transformers -------------------------------------------------------------------------------


def _still(config: Any) -> Any:
    """`config` without dropout."""
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def language(
    name: str, take: Callable[..., Any] | None = None, **own: Any
) -> Callable[[], nn.Module]:
    """A language model of transformers by the name of its configuration; its logits."""

    def make() -> nn.Module:
        config = _still(getattr(transformers, f"{name}Config")(**{**TEXT, **own}))
        model = getattr(transformers, f"{name}ForCausalLM")(config)
        return Result(model, take or (lambda m, i: m(input_ids=i, use_cache=False).logits))

    return make


def bert() -> nn.Module:
    config = _still(transformers.BertConfig(**TEXT))
    return Result(
        transformers.BertForMaskedLM(config),
        lambda m, i, mask: m(input_ids=i, attention_mask=mask, labels=i).loss,
    )


def gpt2() -> nn.Module:
    """With dropout, the numbers of which are those of eager mode."""
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_inner=INNER,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return Result(transformers.GPT2LMHeadModel(config), lambda m, i: m(input_ids=i, labels=i).loss)


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=INNER, num_layers=1, num_heads=HEADS,
        dropout_rate=0.0, decoder_start_token_id=0,
    )  # fmt: skip
    return Result(
        transformers.T5ForConditionalGeneration(config),
        lambda m, i, d: m(input_ids=i, labels=d).loss,
    )


def bart() -> nn.Module:
    config = _still(transformers.BartConfig(vocab_size=WORDS, **CODER))
    return Result(
        transformers.BartModel(config),
        lambda m, i, d: m(input_ids=i, decoder_input_ids=d, use_cache=False).last_hidden_state,
    )


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=WORDS, **CODER, max_source_positions=24, num_mel_bins=20, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    return Result(
        transformers.WhisperModel(_still(config)),
        lambda m, x, i: m(input_features=x, decoder_input_ids=i, use_cache=False).last_hidden_state,
    )


def wav2vec2() -> nn.Module:
    config = transformers.Wav2Vec2Config(
        **LAYERS, conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, num_feat_extract_layers=2,
        mask_time_prob=0.0, apply_spec_augment=False,
    )  # fmt: skip
    return Result(transformers.Wav2Vec2Model(_still(config)), lambda m, x: m(x).last_hidden_state)


def clip() -> nn.Module:
    text = {"vocab_size": WORDS, **LAYERS, "projection_dim": 16, "eos_token_id": 2}
    vision = {**LAYERS, "image_size": 32, "patch_size": 8, "projection_dim": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return Result(
        transformers.CLIPModel(config),
        lambda m, i, mask, x: m(input_ids=i, attention_mask=mask, pixel_values=x).logits_per_text,
    )


def swin() -> nn.Module:
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4,
    )  # fmt: skip
    return Result(
        transformers.SwinModel(_still(config)), lambda m, x: m(pixel_values=x).last_hidden_state
    )


def segformer() -> nn.Module:
    config = transformers.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=16, num_labels=4,
    )  # fmt: skip
    return Result(
        transformers.SegformerForSemanticSegmentation(_still(config)),
        lambda m, x: m(pixel_values=x).logits,
    )


def detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
        out_features=["stage2"],
    )  # fmt: skip
    config = transformers.DetrConfig(
        use_timm_backbone=False, backbone_config=backbone, **CODER, num_queries=6, num_labels=4
    )
    return Result(
        transformers.DetrForObjectDetection(_still(config)),
        lambda m, x: (found := m(pixel_values=x)) and (found.logits, found.pred_boxes),
    )


# -- sounds, graphs, diffusion ------------------------------------------------------------------


def torchaudio_model(make: Callable[[Any], nn.Module]) -> Callable[[], nn.Module]:
    """A model of torchaudio's."""
    return lambda: make(importlib.import_module("torchaudio.models"))


class TwoLayers(nn.Module):
    """Two layers of torch_geometric, and means of the nodes of three graphs."""

    def __init__(self, layer: str, heads: int = 1, **own: Any) -> None:
        super().__init__()
        geometric = importlib.import_module("torch_geometric.nn")
        own = own if heads == 1 else {**own, "heads": heads}
        self.first = getattr(geometric, layer)(8, 16, **own)
        self.pool = geometric.global_mean_pool
        self.second = getattr(geometric, layer)(16 * heads, 5, **own)

    def forward(self, x, edges, batch):
        x = self.second(F.relu(self.first(x, edges)), edges)
        return self.pool(x, batch, 3), x


def graphs(nodes: int, edges: int) -> Tensors:
    return (*graph(nodes, edges), torch.randint(0, 3, (nodes,)).sort()[0])


class AllPairs(nn.Module):
    """Edges between all atoms, and their lengths."""

    def forward(self, places, batch):
        atoms = torch.arange(places.shape[0])
        edges = torch.cartesian_prod(atoms, atoms).t()
        edges = edges[:, edges[0] != edges[1]]
        return edges, (places[edges[0]] - places[edges[1]]).norm(dim=-1)


def schnet() -> nn.Module:
    return importlib.import_module("torch_geometric.nn.models").SchNet(
        hidden_channels=16, num_filters=16, num_interactions=1, num_gaussians=10,
        interaction_graph=AllPairs(),
    )  # fmt: skip


def diffusers_model(name: str, take: Callable[..., Any], **own: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return Result(getattr(importlib.import_module("diffusers"), name)(**own), take)

    return make


BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "sample_size": 16}

UNET = diffusers_model(
    "UNet2DConditionModel", lambda m, x, t, e: m(x, t, e).sample, **BLOCKS, layers_per_block=1,
    cross_attention_dim=WIDTH, attention_head_dim=4,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
)  # fmt: skip
VAE = diffusers_model(
    "AutoencoderKL", lambda m, x: m(x).sample, **BLOCKS,
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
)  # fmt: skip
DIT = diffusers_model(
    "DiTTransformer2DModel", lambda m, x, t, c: m(x, timestep=t, class_labels=c).sample,
    num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=1,
    sample_size=16, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4,
)  # fmt: skip


# -- heads of detectors, tables, physics --------------------------------------------------------


class Proposals(nn.Module):
    """A region proposal network: anchors, the best of them, how much they overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(8, 8, 3, 1, 1)
        self.scores, self.moves = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 12, 1)

    def forward(self, x):
        features = F.relu(self.shared(x))
        b, _, h, w = features.shape
        scores = self.scores(features).permute(0, 2, 3, 1).flatten(1)
        moves = self.moves(features).view(b, 3, 4, h, w).permute(0, 3, 4, 1, 2).reshape(b, -1, 4)
        ys, xs = torch.meshgrid(torch.arange(h) * 8.0, torch.arange(w) * 8.0, indexing="ij")
        shapes = torch.tensor([[-8.0, -8, 8, 8], [-16, -8, 16, 8], [-8, -16, 8, 16]])
        anchors = (torch.stack([xs, ys, xs, ys], -1).view(-1, 1, 4) + shapes).reshape(-1, 4)
        best, places = scores.topk(min(20, scores.shape[1]), dim=1)
        moves, anchors = moves.gather(1, places[..., None].expand(-1, -1, 4)), anchors[places]
        size = anchors[..., 2:] - anchors[..., :2]
        middle = anchors[..., :2] + size / 2 + moves[..., :2] * size
        size = size * moves[..., 2:].clamp(max=4).exp()
        boxes = torch.cat([middle - size / 2, middle + size / 2], -1).clamp(0, 100.0)
        low = torch.max(boxes[:, :, None, :2], boxes[:, None, :, :2])
        high = torch.min(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
        common, own = (
            (high - low).clamp(min=0).prod(-1),
            (boxes[..., 2:] - boxes[..., :2]).prod(-1),
        )
        overlap = common / (own[:, :, None] + own[:, None] - common + 1e-6)
        return boxes, best.sigmoid() * (1 - overlap.triu(1).amax(1))


class Yolo(nn.Module):
    """A head of YOLO: boxes by distributions of distances, at two strides."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes = nn.ModuleList(nn.Conv2d(8, 64, 1) for _ in range(2))
        self.classes = nn.ModuleList(nn.Conv2d(8, 3, 1) for _ in range(2))

    def forward(self, *levels):
        found, points = [], []
        for x, boxes, classes, stride in zip(
            levels, self.boxes, self.classes, (8, 16), strict=True
        ):
            h, w = x.shape[-2:]
            found.append(torch.cat([boxes(x), classes(x)], 1).flatten(2))
            ys, xs = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            points.append(torch.stack([xs, ys], -1).view(-1, 2) * stride)
        boxes, classes = torch.cat(found, 2).split((64, 3), 1)
        weights = boxes.view(boxes.shape[0], 4, 16, -1).softmax(2)
        distances = (weights * torch.arange(16.0).view(1, 1, 16, 1)).sum(2)
        (low, high), middle = distances.chunk(2, 1), torch.cat(points).t()
        low, high = middle - low, middle + high
        return torch.cat([(low + high) / 2, high - low, classes.sigmoid()], 1)


class Dlrm(nn.Module):
    """Clicks: tables of words, a bag, products of all pairs of features."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(WORDS, 8) for _ in range(4))
        self.bag = nn.EmbeddingBag(WORDS, 8, mode="sum")
        self.top = nn.Sequential(nn.Linear(23, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(6, 6, -1))

    def forward(self, x, ids, bagged, starts):
        x = self.bottom(x)
        found = [table(ids[:, k]) for k, table in enumerate(self.tables)]
        features = torch.stack([x, self.bag(bagged, starts), *found], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        products = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).sigmoid()


def clicks(b: int) -> Tensors:
    ids, bagged = torch.randint(0, WORDS, (b, 4)), torch.randint(0, WORDS, (3 * b,))
    return torch.randn(b, 13), ids, bagged, torch.arange(0, 3 * b, 3)


class TabNet(nn.Module):
    """Two steps that attend to columns by sparsemax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.BatchNorm1d(12), self.gated(), nn.Linear(8, 3)
        self.attend = nn.ModuleList(nn.Linear(8, 12) for _ in range(2))
        self.steps = nn.ModuleList(self.gated() for _ in range(2))

    def gated(self) -> nn.Module:
        return nn.Sequential(nn.Linear(12, 32, bias=False), nn.BatchNorm1d(32), nn.GLU())

    def sparsemax(self, x):
        x = x - x.max(-1, keepdim=True)[0]
        ordered = x.sort(-1, descending=True)[0]
        ranks, totals = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype), ordered.cumsum(-1)
        count = (1 + ranks * ordered > totals).sum(-1, keepdim=True)
        return (x - (totals.gather(-1, count - 1) - 1) / count).clamp(min=0)

    def forward(self, x):
        x = self.norm(x)
        state, prior, found = self.first(x)[:, 8:], torch.ones_like(x), 0.0
        for attend, step in zip(self.attend, self.steps, strict=True):
            mask = self.sparsemax(attend(state) * prior)
            prior, y = prior * (1.3 - mask), step(mask * x)
            found, state = found + F.relu(y[:, :8]), y[:, 8:]
        return self.last(found)


class Fourier(nn.Module):
    """A Fourier neural operator: products of the lowest frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 8, 1), nn.Conv2d(8, 1, 1)
        self.weights = nn.Parameter(torch.randn(2, 8, 8, 4, 4, dtype=torch.cfloat) / 8)
        self.beside = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for weight, beside in zip(self.weights, self.beside, strict=True):
            known = torch.fft.rfft2(x)
            found = torch.zeros_like(known)
            found[:, :, :4, :4] = torch.einsum("bixy,ioxy->boxy", known[:, :, :4, :4], weight)
            x = F.gelu(torch.fft.irfft2(found, s=x.shape[-2:]) + beside(x))
        return self.last(x)


NODES = ({0}, {1}, {0})
ALL = ({0, 1},)

MODELS = {
    "BERT": Model("transformers", bert, masked, TEXTS, ALL * 2, counts=(1, 0, 0)),
    "GPT-2": Model("transformers", gpt2, words, TEXTS, ALL, counts=(2, 8, 0)),
    "Llama, NTK": Model(
        "transformers",
        language("Llama", num_key_value_heads=2, max_position_embeddings=8, rope_parameters={
            "rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}),
        words, TEXTS, ALL, exports=False,
        counts=(10, 15, 0),
    ),
    "Mistral, window of 4": Model(
        "transformers", language("Mistral", num_key_value_heads=2, sliding_window=4),
        words, TEXTS, ALL,
        counts=(1, 0, 0),
    ),
    "Mixtral": Model(
        "transformers",
        language("Mixtral", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2),
        words, TEXTS, ALL, counts=(1, 0, 12),
    ),
    "Mamba": Model(
        "transformers", language("Mamba", state_size=4, time_step_rank=4), words, TEXTS, ALL,
        exports=False, counts=(3, 0, 0),
    ),
    "T5": Model("transformers", t5, pairs, TEXTS, ALL * 2, counts=(1, 0, 0)),
    "BART": Model("transformers", bart, pairs, TEXTS, ALL * 2, counts=(1, 0, 0)),
    "Whisper": Model(
        "transformers", whisper, lambda b, s: (torch.randn(b, 20, 48), *words(b, s)),
        TEXTS, ({0}, {0, 1}),
        counts=(1, 0, 0),
    ),
    "wav2vec 2.0": Model("transformers", wav2vec2, sound, SOUNDS, ALL, counts=(1, 4, 0)),
    "CLIP": Model(
        "transformers", clip, lambda b, s: (*masked(b, s), *picture(4)),
        ((5, 7), (2, 13), (6, 9)),
        ({0, 1}, {0, 1}, set()),
        counts=(1, 0, 0),
    ),
    "Swin": Model("transformers", swin, picture, BATCHES, ({0},), counts=(1, 0, 0)),
    "SegFormer": Model(
        "transformers", segformer, picture, PICTURES, ({0, 2, 3},), counts=(2, 9, 0)
    ),
    "DETR": Model("transformers", detr, picture, PICTURES, ({0, 2, 3},), counts=(1, 7, 0)),
    "EfficientNet": Model(
        "timm", lambda: timm_model("test_efficientnet")(SCALE), picture, LARGER, ({0, 2, 3},),
        counts=(1, 0, 0),
    ),
    "ConvNeXt": Model(
        "timm", lambda: timm_model("test_convnext")(SCALE), picture, LARGER, ({0, 2, 3},),
        counts=(1, 0, 0),
    ),
    "Conformer": Model(
        "torchaudio", torchaudio_model(lambda t: t.Conformer(16, 4, 32, 1, 7)),
        lambda b, s: (torch.randn(b, s, 16), torch.arange(s, s - b, -1)),
        ((3, 17), (2, 23), (5, 12)), ({0, 1}, {0}), exports=False,
        counts=(1, 0, 0),
    ),
    "Conv-TasNet": Model(
        "torchaudio", torchaudio_model(lambda t: t.ConvTasNet(2, 16, 16, 3, 8, 16, 2, 1)),
        channels(1), ((3, 400), (2, 528), (5, 304)), ({0, 2},),
        counts=(1, 0, 0),
    ),
    "GCN": Model(
        "torch_geometric", lambda: TwoLayers("GCNConv"), graphs, GRAPHS, NODES, counts=(1, 0, 0)
    ),
    "GAT": Model(
        "torch_geometric", lambda: TwoLayers("GATConv", 2), graphs, GRAPHS, NODES, counts=(1, 0, 0)
    ),
    "GraphSAGE": Model(
        "torch_geometric", lambda: TwoLayers("SAGEConv"), graphs, GRAPHS, NODES, counts=(1, 0, 0)
    ),
    "SchNet": Model(
        "torch_geometric", schnet,
        lambda n: (torch.randint(1, 9, (n,)), torch.randn(n, 3)), ((9,), (13,), (17,)),
        ({0}, {0}), exports=False,
        counts=(1, 0, 0),
    ),
    "UNet of text": Model(
        "diffusers", UNET,
        lambda b, h, w: (
            torch.randn(b, 4, h, w), torch.randint(0, 1000, (b,)), torch.randn(b, 5, WIDTH)
        ),
        MAPS, ({0, 2, 3}, {0}, {0}),
    ),
    "VAE": Model("diffusers", VAE, picture, MAPS, ({0, 2, 3},), counts=(1, 0, 0)),
    "DiT": Model(
        "diffusers", DIT,
        lambda b: (
            torch.randn(b, 4, 16, 16), torch.randint(0, 1000, (b,)), torch.randint(0, 9, (b,))
        ),
        BATCHES, ({0},) * 3,
        counts=(1, 0, 0),
    ),
    "YOLO, its head": Model(
        "", Yolo, lambda b, h, w: (torch.randn(b, 8, 2 * h, 2 * w), torch.randn(b, 8, h, w)),
        ((2, 5, 7), (3, 6, 4), (5, 3, 9)), ({0, 2, 3}, {0, 2, 3}),
        counts=(1, 0, 0),
    ),
    "Region proposals": Model("", Proposals, channels(8), MAPS, ({0, 2, 3},), counts=(1, 0, 0)),
    "DLRM": Model("", Dlrm, clicks, ((5,), (13,), (32,)), ({0},) * 4, counts=(1, 0, 0)),
    "TabNet": Model("", TabNet, channels(12), ((5,), (13,), (32,)), ({0},), 1e-3, counts=(1, 0, 0)),
    "FNO": Model("", Fourier, channels(2), MAPS, ({0, 2, 3},), counts=(1, 0, 0)),
}  # fmt: skip
"""By the names of the page."""


# -- beside eager mode --------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What a model does beside eager mode."""

    graphs: int
    """How many graphs the three sizes compile in inference."""
    forward: str
    training: str
    export: str
    breaks: int
    eager: int
    """Operations that PyTorch runs in the graphs of training."""
    speed: float
    """Of a small call: the time of eager mode by ours."""


def _tensors(results: Any) -> list[torch.Tensor]:
    results = results.to_tuple() if hasattr(results, "to_tuple") else results
    return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


class NotExportedError(Exception):
    """PyTorch itself cannot export a model."""


def _told(check: Callable[[], None]) -> str:
    """`right`, or in a word what is not."""
    try:
        check()
    except AssertionError as error:
        return f"wrong: {error}".partition("\n")[0]
    except NotExportedError:
        return "PyTorch cannot"
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return "right"


def _assert_near(got: Iterable[torch.Tensor], want: Iterable[torch.Tensor], tolerance: float):
    """Within `tolerance` of the largest element of each."""
    for a, b in zip(got, want, strict=True):
        size = b.abs().max().item() if b.is_floating_point() and b.numel() else 0.0
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance * size, equal_nan=True)


def _compiled(model: Model, module: nn.Module) -> Callable[..., Any]:
    """All sizes dynamic; of pictures whose size weights determine, those that :class:`Model` says.

    Dynamo makes all sizes of all arguments dynamic, or those that are marked.
    """
    fast = torch.compile(
        module, backend="shlo_disc", dynamic=None if model.dims == ({0},) else True
    )

    def call(*args):
        if model.dims == ({0},):
            torch._dynamo.mark_dynamic(args[0], 0)
        return fast(*args)

    return call


def _given(model: Model, number: int) -> Tensors:
    torch.manual_seed(number)
    return model.arguments(*model.sizes[number % len(model.sizes)])


def _assert_forward(model: Model, module: nn.Module, fast: Callable[..., Any]) -> None:
    with torch.no_grad():
        for number in range(len(model.sizes)):
            args = _given(model, number)
            _assert_near(_tensors(fast(*args)), _tensors(module(*args)), model.tolerance)


def _speed(fast: Callable[..., Any], own: Callable[..., Any], args: Tensors) -> float:
    """The shortest of interleaved calls of each."""
    times: dict[Any, list[float]] = {fast: [], own: []}
    with torch.no_grad():
        for _ in range(20):
            for run, seconds in times.items():
                start = time.perf_counter()
                run(*args)
                seconds.append(time.perf_counter() - start)
    return min(times[own]) / min(times[fast])


STEPS = 10


def _assert_trains(model: Model, mine: nn.Module, fast: Callable[..., Any]) -> None:
    """Losses of ten steps of AdamW; where they differ from eager mode, f64 judges both."""
    own, exact = copy.deepcopy(mine), copy.deepcopy(mine)
    got, want = _losses(model, mine, fast), _losses(model, own, own)
    error, allowed = (got - want).abs().max(), model.tolerance * want.abs().max()
    if error > allowed:
        exact.double()
        allowed += 2 * (want - _losses(model, exact, exact, wide=True)).abs().max()
    assert error <= allowed, f"losses are {error:.1e} apart"


def _losses(
    model: Model, module: nn.Module, run: Callable[..., Any], *, wide: bool = False
) -> torch.Tensor:
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    found = []
    for step in range(STEPS):
        args = [x.double() if wide and x.is_floating_point() else x for x in _given(model, step)]
        torch.manual_seed(step)
        results = [x for x in _tensors(run(*args)) if x.requires_grad]
        loss = sum(  # type: ignore[var-annotated]
            (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape)).mean()
            + x.square().mean()
            for x in results
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found, dtype=torch.float64)


def _assert_exports(model: Model, module: nn.Module) -> None:
    """With parameters that require gradients, while gradients are recorded."""
    dims: Any = tuple(dict.fromkeys(own, Dim.DYNAMIC) for own in model.dims)
    dims = (dims,) if isinstance(module, Result | Yolo) else dims
    try:
        program = export(module, _given(model, 0), dynamic_shapes=dims)
    except Exception as error:
        raise NotExportedError from error
    run = shlo_disc.torch.compile(program, on_unsupported="error")
    for number in range(len(model.sizes)):
        args = _given(model, number)
        with torch.no_grad():
            want = _tensors(module(*args))
        _assert_near(_tensors(run(*args)), want, model.tolerance)


def row(name: str) -> Row:
    """The model of this name beside eager mode."""
    model = MODELS[name]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    module = model.make().eval()
    before = {graph.number for graph in shlo_disc.torch.compilations()}
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        fast = _compiled(model, module)
        forward = _told(lambda: _assert_forward(model, module, fast))
        inference = [g for g in shlo_disc.torch.compilations() if g.number not in before]
        speed = _speed(fast, module, _given(model, 1)) if forward == "right" else 0.0
        mine = copy.deepcopy(module).train()
        trained = _compiled(model, mine)
        training = _told(lambda: _assert_trains(model, mine, trained))
        graphs = [g for g in shlo_disc.torch.compilations() if g.number not in before]
    exported = _told(lambda: _assert_exports(model, module))
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    eager = sum(graph.eager_count for graph in graphs)
    return Row(len(inference), forward, training, exported, breaks, eager, speed)


def page() -> str:
    """The text of docs/torch-models.md: the models whose graphs were counted."""
    rows = [_line(name, m) for name, m in MODELS.items() if m.counts is not None]
    return "\n".join([
        "# Models of PyTorch",
        "",
        "Small models of PyTorch's libraries, with random weights, right beside eager mode:",
        "forward at three sets of sizes, ten steps of AdamW with these in turn, exported with",
        "dynamic sizes while gradients are recorded. `make test-torch-models` compares these and",
        "more; here are those whose graphs are counted. Printed from",
        "`tests/torch/library_models.py`.",
        "",
        "Compilations are those of inference. Graph breaks are Dynamo's own, at training too,",
        "with `capture_dynamic_output_shape_ops` and `capture_scalar_outputs` set in",
        "`torch._dynamo.config`.",
        "Eager operations are those that PyTorch runs between compiled regions, of all graphs.",
        "",
        "transformers has GPT-2 log a warning while it is traced, Llama ask whether data exceed a",
        "number, SegFormer register hooks, and in training DETR ask whether numbers are infinite",
        "and wav2vec 2.0 set `requires_grad` of a tensor: Dynamo breaks there.",
        "It unrolls Mamba's loop over the words, so each length is a graph of its own.",
        "",
        "| Model | Library | Compilations | Graph breaks | Eager operations | Export |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ])  # fmt: skip


def _line(name: str, model: Model) -> str:
    counts = map(str, model.counts or ())
    exported = "right" if model.exports else "PyTorch cannot"
    return f"| {' | '.join([name, model.library, *counts, exported])} |"


def main(names: Sequence[str]) -> None:
    """Print what these models do, as it is found; without names the page."""
    if not names:
        sys.stdout.write(page())
    torch.set_num_threads(1)
    for name in names:
        print(name, row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
