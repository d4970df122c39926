"""Which ATen ops the models of well-known libraries use, forward and backward.

python -m tests.torch.library_ops > tests/torch/library_ops.txt

Runs models of the libraries that are installed, the large ones on the meta device, and prints a
row for each op: what autograd dispatches, and what `torch.export` has of composite ops. No test
runs it; each library that fails to import, and each model that fails, is told on stderr.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

LIST = Path(__file__).with_suffix(".txt")

Run = Callable[[], Any]
"""A forward pass; its results."""


def listed() -> dict[str, list[str]]:
    """`add.Tensor` -> the libraries whose models use it."""
    rows = (line.split() for line in LIST.read_text().splitlines() if not line.startswith("#"))
    return {op: libraries for op, *libraries in rows}


class Used(TorchDispatchMode):
    """Notes the ATen ops that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[str] = set()

    def note(self, op: Any) -> None:
        if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten":
            self.ops.add(str(op).removeprefix("aten."))

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.note(op)
        return op(*args, **(kwargs or {}))


def ops_of(run: Run) -> set[str]:
    """The ops of a forward pass, of its gradient if it has one, and the composite ones."""
    used = Used()
    with used:
        results = [x for x in pytree.tree_leaves(_plain(run())) if isinstance(x, torch.Tensor)]
        trained = [x for x in results if x.requires_grad and x.is_floating_point()]
        if trained:
            torch.autograd.backward(trained, [torch.ones_like(x) for x in trained])
    with contextlib.suppress(Exception), torch.no_grad():
        graph = make_fx(lambda: _plain(run()), pre_dispatch=True)().graph
        for node in graph.nodes:
            used.note(node.target)
    return used.ops


def _plain(results: Any) -> Any:
    """Tensors of the results of a library, which may have classes of its own."""
    if hasattr(results, "to_tuple"):
        return results.to_tuple()
    if hasattr(results, "__dict__") and not isinstance(results, torch.Tensor):
        return {k: v for k, v in vars(results).items() if isinstance(v, torch.Tensor)}
    return results


def _words(*shape: int, high: int = 9) -> torch.Tensor:
    return torch.randint(0, high, shape)


# -- transformers -------------------------------------------------------------------------------


def transformers_() -> Iterator[tuple[str, Run]]:
    """Every third base model, with few layers, on the meta device."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = importlib.import_module("transformers")
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for kind in sorted(auto.MODEL_MAPPING_NAMES)[::3]:
        yield kind, functools.partial(_transformer, transformers, kind)


_FEW = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "n_layer", "n_layers",
        "num_decoder_layers", "num_encoder_layers")  # fmt: skip


def _transformer(transformers: Any, kind: str) -> Any:
    config = transformers.AutoConfig.for_model(kind)
    for part in (config, *vars(config).values()):
        for name in _FEW:
            if isinstance(getattr(part, name, None), int):
                with contextlib.suppress(Exception):
                    setattr(part, name, 2)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config).eval()
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224)
        size = size if isinstance(size, int) else 224
        picture = torch.zeros(2, getattr(vision, "num_channels", 3) or 3, size, size)
        text, sound = torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 16000)
        by_name = {
            "input_ids": (text,), "pixel_values": (picture,), "input_values": (sound,),
            "input_features": (torch.zeros(2, 80, 3000),),
        }  # fmt: skip
        first = by_name[model.main_input_name]
        ways = [{}, {"decoder_input_ids": text}, {"pixel_values": picture}]
        errors = []
        for more in ways:
            try:
                return model(*first, **more)
            except Exception as error:
                errors.append(error)
        raise errors[0]


# -- timm ---------------------------------------------------------------------------------------


def timm_() -> Iterator[tuple[str, Run]]:
    """The first, the middle and the last model of every module, on the meta device."""
    from tests.torch.torchvision_names import without_torchvision

    with without_torchvision():
        timm = importlib.import_module("timm")
    modules = sorted({timm.models.model_entrypoint(n).__module__ for n in timm.list_models()})
    for module in modules:
        names = timm.list_models(module=module.rpartition(".")[2])
        for name in {names[0], names[len(names) // 2], names[-1]}:

            def run(name=name):
                with torch.device("meta"):
                    model = timm.create_model(name, pretrained=False)
                    return model(torch.zeros(2, *model.pretrained_cfg["input_size"]))

            yield name, run


# -- sounds -------------------------------------------------------------------------------------


def torchaudio_() -> Iterator[tuple[str, Run]]:
    models = importlib.import_module("torchaudio.models")
    transforms = importlib.import_module("torchaudio.transforms")
    functional = importlib.import_module("torchaudio.functional")
    sound = torch.randn(2, 4000)
    lengths = torch.tensor([50, 40])
    yield "conformer", lambda: models.Conformer(16, 4, 32, 2, 3)(torch.randn(2, 50, 16), lengths)
    yield "wav2letter", lambda: models.Wav2Letter(5)(torch.randn(2, 1, 4000))
    yield "deepspeech", lambda: models.DeepSpeech(16)(torch.randn(2, 1, 50, 16))
    yield "conv_tasnet", lambda: models.conv_tasnet_base()(torch.randn(1, 1, 4000))
    yield "hdemucs", lambda: models.hdemucs_low(["a", "b"])(torch.randn(1, 2, 44100))
    yield (
        "emformer",
        lambda: models.Emformer(16, 4, 32, 2, 4, right_context_length=1)(
            torch.randn(2, 50, 16), lengths
        ),
    )
    yield (
        "wavernn",
        lambda: models.WaveRNN(
            [2, 2, 3], 8, 12, n_res_block=2, n_rnn=16, n_fc=16, n_freq=8, n_hidden=16, n_output=16
        )(torch.randn(2, 1, 72), torch.randn(2, 1, 8, 10)),
    )
    yield (
        "tacotron2",
        lambda: models.Tacotron2(n_mels=8)(
            _words(2, 7), torch.tensor([7, 5]), torch.randn(2, 8, 9), torch.tensor([9, 6])
        ),
    )
    yield (
        "wav2vec2",
        lambda: models.wav2vec2_base()(torch.randn(2, 4000), torch.tensor([4000, 3000])),
    )
    yield (
        "rnnt",
        lambda: models.emformer_rnnt_base(16)(
            torch.randn(2, 20, 80),
            torch.tensor([16, 12]),
            _words(2, 5, high=16),
            torch.tensor([5, 4]),
        ),
    )
    yield "squim", lambda: models.squim_objective_base()(torch.randn(1, 16000))
    for name, arguments in {
        "Spectrogram": (), "MelSpectrogram": (), "MFCC": (), "LFCC": (), "AmplitudeToDB": (), "Resample": (8000, 6000),
        "MuLawEncoding": (), "Fade": (100, 100), "TimeMasking": (20,), "FrequencyMasking": (20,),
        "SpectralCentroid": (16000,), "Loudness": (16000,), "Preemphasis": (), "Deemphasis": (),
        "ComputeDeltas": (), "SlidingWindowCmn": (), "Vol": (0.5,), "PitchShift": (16000, 2), "Speed": (16000, 1.2),
    }.items():  # fmt: skip
        yield (
            name,
            lambda n=name, a=arguments: getattr(transforms, n)(*a)(sound.clone().requires_grad_()),
        )
    spectrum = torch.stft(sound, 400, return_complex=True, window=torch.hann_window(400))
    yield "GriffinLim", lambda: transforms.GriffinLim(n_iter=2)(spectrum.abs())
    yield "InverseSpectrogram", lambda: transforms.InverseSpectrogram()(spectrum)
    yield "TimeStretch", lambda: transforms.TimeStretch(fixed_rate=1.2)(spectrum)
    yield "PSD", lambda: transforms.PSD()(spectrum[None])
    yield (
        "MVDR",
        lambda: transforms.MVDR()(
            spectrum[None].to(torch.cdouble), torch.rand(1, *spectrum.shape[1:])
        ),
    )
    yield "InverseMelScale", lambda: transforms.InverseMelScale(201)(torch.rand(1, 128, 5))
    yield (
        "RNNTLoss",
        lambda: transforms.RNNTLoss()(
            torch.randn(2, 5, 4, 6).log_softmax(-1).requires_grad_(),
            _words(2, 3, high=5).int() + 1,
            torch.tensor([5, 4]).int(),
            torch.tensor([3, 2]).int(),
        ),
    )
    for name, arguments in {
        "lowpass_biquad": (16000, 400.0), "lfilter": (torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.2])),
        "filtfilt": (torch.tensor([1.0, 0.5]), torch.tensor([1.0, 0.2])), "phaser": (16000,), "overdrive": (),
        "detect_pitch_frequency": (16000,), "vad": (16000,), "contrast": (), "dcshift": (0.1,), "gain": (),
        "fftconvolve": (torch.randn(2, 30),), "convolve": (torch.randn(2, 30),), "mu_law_encoding": (256,),
        "add_noise": (torch.randn(2, 200), torch.tensor([1.0, 2.0])), "dither": (),
    }.items():  # fmt: skip
        yield name, lambda n=name, a=arguments: getattr(functional, n)(sound[:, :200], *a)
    yield (
        "forced_align",
        lambda: functional.forced_align(
            torch.randn(1, 9, 5).log_softmax(-1), _words(1, 3, high=4).int() + 1
        ),
    )


# -- graphs -------------------------------------------------------------------------------------


def torch_geometric_() -> Iterator[tuple[str, Run]]:
    """Every layer that can be made of two widths, aggregations, poolings, models."""
    geometric = importlib.import_module("torch_geometric.nn")
    x, edges, batch = torch.randn(9, 8), _words(2, 20), torch.tensor([0] * 4 + [1] * 5)
    weights, attributes, kinds = torch.rand(20), torch.randn(20, 8), _words(20, high=3)
    perceptron = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    tries: list[tuple[tuple[Any, ...], tuple[Any, ...]]] = [
        (made, given)
        for made in ((8, 8), (8,), (perceptron,), (8, 8, 3), (8, 8, 2), (8, 8, 3, 3), (8, 2), (), (perceptron, 3))
        for given in ((x, edges), (x, edges, weights), (x, edges, attributes), (x, edges, kinds),
                      (x, x, edges), (x, batch), (x, torch.randn(9, 3), edges), (x, edges, None, None, batch))
    ]  # fmt: skip
    names = [n for part in ("conv", "aggr", "pool", "norm", "models", "dense", "unpool")
             for n in getattr(importlib.import_module(f"torch_geometric.nn.{part}"), "__all__", ())]  # fmt: skip

    def fitting(name):
        """A call of a layer with the first arguments that it takes."""
        for made, given in tries:
            with contextlib.suppress(Exception):
                layer = getattr(geometric, name)
                layer = layer(*made) if isinstance(layer, type) else layer
                layer(*given)
                return lambda: layer(*(
                    x.clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point()
                    else x for x in given))  # fmt: skip
        raise ValueError("none of the arguments fit")

    for name in dict.fromkeys(names):
        try:
            yield name, fitting(name)
        except ValueError as error:
            yield name, functools.partial(_raise, error)
    utils = importlib.import_module("torch_geometric.utils")
    for name, arguments in {
        "add_self_loops": (edges,), "remove_self_loops": (edges,), "to_undirected": (edges,),
        "degree": (edges[0],), "softmax": (weights, edges[1]), "scatter": (attributes, edges[1]),
        "coalesce": (edges,), "subgraph": (torch.tensor([0, 1, 2]), edges), "to_dense_adj": (edges,),
        "to_dense_batch": (x, batch), "get_laplacian": (edges,), "dropout_edge": (edges,),
        "k_hop_subgraph": (1, 2, edges), "negative_sampling": (edges,), "one_hot": (edges[0],),
        "sort_edge_index": (edges,), "unbatch": (x, batch), "dense_to_sparse": (torch.rand(5, 5).round(),),
    }.items():  # fmt: skip
        yield name, lambda n=name, a=arguments: getattr(utils, n)(*a)


def _raise(error: Exception) -> None:
    raise error


# -- diffusion ----------------------------------------------------------------------------------


def diffusers_() -> Iterator[tuple[str, Run]]:
    d = importlib.import_module("diffusers")
    narrow = {"block_out_channels": (32, 32), "layers_per_block": 1, "norm_num_groups": 8}
    picture, time, text = torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 5, 32)
    yield (
        "unet",
        lambda: d.UNet2DModel(
            16,
            4,
            4,
            **narrow,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        )(picture, time),
    )
    yield (
        "unet of text",
        lambda: d.UNet2DConditionModel(
            16,
            4,
            4,
            **narrow,
            cross_attention_dim=32,
            attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        )(picture, time, text),
    )
    yield (
        "unet 1d",
        lambda: d.UNet1DModel(64, 2, 2, extra_in_channels=16)(torch.randn(2, 2, 64), time),
    )
    ends = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    yield "kl", lambda: d.AutoencoderKL(**ends, **narrow)(torch.randn(2, 3, 16, 16))
    yield "vq", lambda: d.VQModel(**ends, **narrow)(torch.randn(2, 3, 16, 16))
    yield "tiny", lambda: d.AutoencoderTiny()(torch.randn(2, 3, 16, 16))
    yield (
        "dit",
        lambda: d.DiTTransformer2DModel(2, 16, 4, num_layers=1, norm_num_groups=8, sample_size=8)(
            torch.randn(2, 4, 8, 8), timestep=time, class_labels=time
        ),
    )
    yield (
        "pixart",
        lambda: d.PixArtTransformer2DModel(
            2,
            16,
            4,
            num_layers=1,
            norm_num_groups=8,
            cross_attention_dim=32,
            caption_channels=32,
            sample_size=8,
        )(
            torch.randn(2, 4, 8, 8),
            text,
            timestep=time,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ),
    )
    yield (
        "sd3",
        lambda: d.SD3Transformer2DModel(
            sample_size=8,
            num_layers=1,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=32,
            caption_projection_dim=32,
            pooled_projection_dim=16,
            in_channels=4,
            out_channels=4,
        )(torch.randn(2, 4, 8, 8), text, torch.randn(2, 16), time),
    )
    yield (
        "flux",
        lambda: d.FluxTransformer2DModel(
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=16,
            axes_dims_rope=(4, 6, 6),
        )(
            torch.randn(2, 16, 4),
            text,
            torch.randn(2, 16),
            time,
            torch.zeros(16, 3),
            torch.zeros(5, 3),
        ),
    )
    yield (
        "prior",
        lambda: d.PriorTransformer(2, 8, 1, 32, 5)(
            torch.randn(2, 32), time, torch.randn(2, 32), text
        ),
    )
    yield (
        "controlnet",
        lambda: d.ControlNetModel(
            4,
            **narrow,
            cross_attention_dim=32,
            attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        )(picture, time, text, torch.randn(2, 3, 128, 128)),
    )
    for name in ("DDPMScheduler", "DDIMScheduler", "EulerDiscreteScheduler", "LMSDiscreteScheduler",
                 "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "PNDMScheduler",
                 "FlowMatchEulerDiscreteScheduler", "HeunDiscreteScheduler"):  # fmt: skip
        yield name, functools.partial(_schedule, d, name, picture)


def _schedule(d: Any, name: str, picture: torch.Tensor) -> Any:
    scheduler = getattr(d, name)()
    scheduler.set_timesteps(4)
    x = picture
    for t in scheduler.timesteps[:3]:
        x = scheduler.step(picture, t, x).prev_sample
    return x


# -- detection ----------------------------------------------------------------------------------


def ultralytics_() -> Iterator[tuple[str, Run]]:
    """Every kind of model of the last versions, with its loss or in eval mode."""
    os.environ.setdefault("YOLO_CONFIG_DIR", "/tmp")
    tasks = importlib.import_module("ultralytics.nn.tasks")
    kinds = {"DetectionModel": ("yolov8n.yaml", "yolo11n.yaml", "yolov10n.yaml", "yolo12n.yaml", "yolov5n.yaml"),
             "SegmentationModel": ("yolo11n-seg.yaml",), "PoseModel": ("yolo11n-pose.yaml",),
             "OBBModel": ("yolo11n-obb.yaml",), "ClassificationModel": ("yolo11n-cls.yaml",),
             "RTDETRDetectionModel": ("rtdetr-l.yaml",)}  # fmt: skip
    for kind, files in kinds.items():
        for file in files:
            for train in (False, True):
                yield f"{file} {train}", functools.partial(_yolo, getattr(tasks, kind), file, train)
    nms = importlib.import_module("ultralytics.utils.nms")
    yield "nms", lambda: nms.non_max_suppression(torch.rand(1, 84, 60))


def _yolo(make: Any, file: str, train: bool) -> Any:
    model = make(file, verbose=False)
    picture = torch.rand(2, 3, 64, 64)
    if not train:
        return model.eval()(picture)
    from types import SimpleNamespace

    model.args = SimpleNamespace(box=7.5, cls=0.5, dfl=1.5, pose=12.0, kobj=1.0, overlap_mask=True,
                                 epochs=1, angle=1.0, cls_pw=0.0)  # fmt: skip
    batch = {
        "img": picture, "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
        "cls": torch.zeros(3, 1), "bboxes": torch.rand(3, 4) * 0.4 + 0.3,
        "masks": torch.zeros(2, 16, 16), "keypoints": torch.rand(3, 17, 3),
    }  # fmt: skip
    return model.train()(batch)


def torchvision_() -> Iterator[tuple[str, Run]]:
    _define_kernels()
    importlib.import_module("torchvision.extension")._has_ops = lambda: True
    detection = importlib.import_module("torchvision.models.detection")
    segmentation = importlib.import_module("torchvision.models.segmentation")
    video = importlib.import_module("torchvision.models.video")
    ops = importlib.import_module("torchvision.ops")
    pictures = [torch.rand(3, 96, 80), torch.rand(3, 64, 96)]
    targets = [{"boxes": torch.tensor([[4.0, 5.0, 40.0, 50.0], [1.0, 1.0, 30.0, 20.0]]),
                "labels": torch.tensor([1, 2]), "masks": torch.ones(2, *p.shape[1:], dtype=torch.uint8),
                "keypoints": torch.rand(2, 17, 3) * 40} for p in pictures]  # fmt: skip
    for name in ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn",
                 "retinanet_resnet50_fpn", "fcos_resnet50_fpn", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large"):  # fmt: skip
        small = {} if name.startswith("ssd") else {"min_size": 96, "max_size": 128}

        def run(train, name=name, small=small):
            model = getattr(detection, name)(weights=None, weights_backbone=None, **small)
            return model.train()(pictures, targets) if train else model.eval()(pictures)

        yield name, functools.partial(run, False)
        yield f"{name} training", functools.partial(run, True)
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        yield (
            name,
            lambda n=name: getattr(segmentation, n)(weights=None, weights_backbone=None)(
                torch.rand(2, 3, 64, 64)
            ),
        )
    for name in ("r3d_18", "mvit_v2_s", "swin3d_t"):
        yield name, lambda n=name: getattr(video, n)(weights=None)(torch.rand(1, 3, 16, 224, 224))
    boxes, others = torch.rand(6, 4).sort()[0].requires_grad_(), torch.rand(6, 4).sort()[0]
    for name in ("generalized_box_iou_loss", "complete_box_iou_loss", "distance_box_iou_loss",
                 "box_iou", "generalized_box_iou", "complete_box_iou"):  # fmt: skip
        yield name, lambda n=name: getattr(ops, n)(boxes, others)
    yield "focal", lambda: ops.sigmoid_focal_loss(boxes, (others > 0.5).float())
    yield "masks", lambda: ops.masks_to_boxes(torch.rand(2, 9, 9) > 0.5)


def _define_kernels() -> None:
    """Kernels of torchvision that its package has none of for this PyTorch."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    box = "Tensor input, Tensor rois, float scale, int height, int width, int ratio, bool aligned"
    for name in ("nms", "qnms"):
        torch.library.define(
            f"torchvision::{name}", "(Tensor dets, Tensor scores, float t) -> Tensor"
        )
    torch.library.define("torchvision::roi_align", f"({box}) -> Tensor")
    torch.library.impl("torchvision::nms", "CPU", lambda boxes, scores, t: scores.argsort())

    def roi(x, rois, scale, height, width, ratio, aligned):
        return x.new_zeros(len(rois), x.shape[1], height, width) + x.mean()

    torch.library.impl("torchvision::roi_align", "CompositeImplicitAutograd", roi)


LIBRARIES = {
    "detection": torchvision_, "diffusers": diffusers_, "timm": timm_, "torch_geometric": torch_geometric_,
    "torchaudio": torchaudio_, "transformers": transformers_, "ultralytics": ultralytics_,
}  # fmt: skip


def _note(library: str, runs: Callable[[], Iterator[tuple[str, Run]]], found: Any) -> None:
    """Put the ops of a library into `found`."""
    good = bad = 0
    try:
        for name, run in runs():
            torch.manual_seed(0)
            try:
                for op in ops_of(run):
                    found[op].add(library)
                good += 1
            except Exception as error:
                bad += 1
                text = f"{type(error).__name__}: {error}".partition("\n")[0]
                print(f"{library} {name}: {text[:160]}", file=sys.stderr, flush=True)
    except (ImportError, RuntimeError) as error:
        print(f"{library}: {error}", file=sys.stderr)
    print(f"{library}: {good} models, {bad} fail", file=sys.stderr, flush=True)


def main(only: list[str]) -> None:
    """Print the list; of some libraries, rows of theirs are renewed."""
    out, sys.stdout = sys.stdout, sys.stderr  # which libraries write to
    found: dict[str, set[str]] = collections.defaultdict(set)
    for op, libraries in listed().items() if only and LIST.exists() else ():
        found[op] |= set(libraries) - set(only)
    with contextlib.suppress(KeyboardInterrupt):  # what was found by then is printed
        for library, runs in LIBRARIES.items():
            if not only or library in only:
                _note(library, runs, found)
    sys.stdout = out
    print(
        "# Printed by tests/torch/library_ops.py: ATen ops, and the libraries whose models use them."
    )
    for op in sorted(found):
        if found[op]:
            print(op, *sorted(found[op]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(sys.argv[1:])
