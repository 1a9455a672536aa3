"""The compiled pieces of a training run: model, optimizer, mesh, and the jitted functions."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jax.stages import Lowered

from flaxformer_mt.config import ExperimentConfig, loss_chunk
from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.data.batch import Share
from flaxformer_mt.data.pipeline import Batch  # there it becomes a pytree
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.model.embedding import used_tables
from flaxformer_mt.model.parameters import initial_adapters, initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.chips import AMPERE, chip_of, cuda_capability, fastest_dtype
from flaxformer_mt.parallel.mesh import (
    MOST_PARTS,
    MeshError,
    batch_sharding,
    batch_share,
    can_scatter,
    make_mesh,
    on_mesh,
    place_batch,
    shardings_of,
    splits_data_only,
    spread_over_data,
    without_names,
)
from flaxformer_mt.training.loss import LossSums
from flaxformer_mt.training.optimizer import learning_rate, make_optimizer
from flaxformer_mt.training.step import (
    Metrics,
    TrainState,
    UpdateLayout,
    batch_loss,
    make_train_step,
    model_weights,
)


@dataclasses.dataclass(frozen=True)
class Program:
    """The functions that `train` calls, made by `build`. All run on `mesh`.

    Batches are host arrays with the rows of `share`: all rows, unless the mesh spans several
    processes.
    """

    config: ExperimentConfig
    model: Transformer
    mesh: Mesh
    share: Share
    abstract: TrainState  # shapes, dtypes and shardings of the state
    init: Callable[[], TrainState]
    train_step: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]  # donates the state
    weights: Callable[[TrainState], Any]  # of the model, to validate: the average's, if it is kept
    eval_step: Callable[[Any, Batch], LossSums]
    compilations: Callable[[], int]  # shapes of the training step compiled so far
    lower_train_step: Callable[[Shape], Lowered]  # for one shape of batch; nothing is computed
    lower_eval_step: Callable[[Shape], Lowered]  # of the weights that are validated

    @property
    def abstract_weights(self) -> Any:
        """The model's weights, as `abstract`, whatever of them is trained."""
        return self.abstract.params if self.abstract.base is None else self.abstract.base

    @property
    def compiles_ahead(self) -> bool:
        """Whether all shapes are compiled before the first step, and not each when it comes."""
        return bool(self.mesh.devices.flat[0].platform != "cpu")

    @contextlib.contextmanager
    def compiling(
        self, first: Shape, trained: Iterable[Shape], validated: Iterable[Shape]
    ) -> Iterator[None]:
        """While the block runs, threads compile the steps of these shapes.

        The compiler needs no Python, so drawing a state in the block takes no extra time. An
        accelerator's host has the cores to compile all in the minutes that one takes; a CPU takes
        seconds for each and compiles only the first here.
        """
        steps = [functools.partial(self.lower_train_step, first)]
        if self.compiles_ahead:
            remaining = sorted({*trained} - {first})
            steps += [functools.partial(self.lower_train_step, shape) for shape in remaining]
            steps += [functools.partial(self.lower_eval_step, shape) for shape in {*validated}]
        with ThreadPoolExecutor(len(steps), thread_name_prefix="compile") as pool:
            # JAX caches these programs: the first call finds them.
            compiled = pool.map(lambda lowered: lowered().compile(), steps)
            yield
            list(compiled)  # raises the compiler's errors


def with_dtype(config: ExperimentConfig, device: jax.Device) -> ExperimentConfig:
    """The config with `model.dtype` "auto" settled for this device, as runs record it."""
    if config.model.dtype != "auto":
        return config
    model = dataclasses.replace(config.model, dtype=fastest_dtype(device))
    return dataclasses.replace(config, model=model)


def mesh_of(config: ExperimentConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh (default: of all devices) that splits the config's batches. Raises MeshError."""
    mesh = make_mesh(config.mesh, devices)
    rows = config.data.batch.multiple
    micro = config.training.optimizer.accumulation
    split = mesh.shape["data"] * mesh.shape["fsdp"]
    if rows % (split * micro):
        raise MeshError(
            f"'data.batch.multiple' = {rows} must be divisible by {split * micro}: {split} devices "
            "(mesh.data x mesh.fsdp) split "
            f"{f'each of {micro} micro-batches' if micro > 1 else 'a batch'}"
        )
    return mesh


def build(
    config: ExperimentConfig,
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    devices: Sequence[jax.Device] | None = None,
) -> Program:
    """Model, optimizer and jitted steps of a config on `devices` (default: all).

    On devices that are only described, such as a TPU topology's, the functions can be compiled but
    not called. Raises MeshError, FreezeError and AdapterError.
    """
    mesh = mesh_of(config, devices)
    config = _for_device(config, mesh.devices.flat[0])
    model = Transformer(config.model, src_vocab_size, tgt_vocab_size)
    steps = config.training.steps
    schedule = learning_rate(config.training.schedule, config.model.d_model, steps)
    optimizer = make_optimizer(config.training.optimizer, schedule, config.training.freeze)

    @jax.jit  # caches the trace, which is needed for shapes and values
    def boxed_state() -> TrainState:
        return _boxed_state(model, config, optimizer)

    @functools.partial(jax.jit, compiler_options=_compiler_options(config))
    def eval_step(params: Any, batch: Batch) -> LossSums:
        return batch_loss(model, config, params, batch, None)

    with on_mesh(mesh):
        shardings, layout = _state_layout(config, jax.eval_shape(boxed_state), mesh)
        init = jax.jit(lambda: nn.unbox(boxed_state()), out_shardings=shardings)
        train_step = jax.jit(
            make_train_step(model, config, optimizer, schedule, layout),
            in_shardings=(shardings, batch_sharding(mesh)),
            out_shardings=(shardings, None),
            donate_argnums=0,
            compiler_options=_compiler_options(config) | _overlap_options(mesh),
        )
        abstract = init.eval_shape()

    whole = shardings.base
    if whole is None and layout is not None:
        whole = layout.whole
    weights = _weights(config, whole, mesh)
    validated = _validated(abstract, whole)
    return Program(
        config=config,
        model=model,
        mesh=mesh,
        share=Share(*batch_share(mesh)),
        abstract=abstract,
        init=on_mesh(mesh)(init),
        train_step=_called(train_step, mesh),
        weights=weights,
        eval_step=_called(eval_step, mesh),
        compilations=train_step._cache_size,  # type: ignore[attr-defined]
        lower_train_step=_lowering(
            train_step, abstract, mesh, has_weights=config.data.has_pair_weights
        ),
        lower_eval_step=_lowering(eval_step, validated, mesh),
    )


def _for_device(config: ExperimentConfig, device: jax.Device) -> ExperimentConfig:
    """The config with everything settled that it leaves to the device. Raises MeshError."""
    config = with_dtype(config, device)
    if config.training.exchange_dtype == "bfloat16" and config.model.dtype != "bfloat16":
        raise MeshError("'training.exchange_dtype' = bfloat16 needs 'model.dtype' = bfloat16")
    chunk = loss_chunk(config.training, device.platform)
    return dataclasses.replace(
        config,
        model=model_for_device(config.model, device),
        training=dataclasses.replace(config.training, loss_chunk=chunk),
    )


def model_for_device(config: ModelConfig, device: jax.Device) -> ModelConfig:
    """The form of the model's kernels that suits the device. Raises MeshError.

    A GPU's step waits for memory, so what lies between its kernels is kept in bfloat16. On a TPU
    that costs time: a product with a float32 result carries a normalisation's sums along.
    """
    kept = config.activation_dtype
    if kept == "auto":
        kept = config.dtype if device.platform == "gpu" else "float32"
    if kept == "bfloat16" and config.dtype != "bfloat16":
        raise MeshError("'model.activation_dtype' = bfloat16 needs 'model.dtype' = bfloat16")

    settled = dataclasses.replace(config, activation_dtype=kept)
    return dataclasses.replace(settled, attention_kernel=_attention_kernel(settled, device))


def _attention_kernel(config: ModelConfig, device: jax.Device) -> Literal["einsum", "cudnn"]:
    """The one that the config names, or that suits the device. Raises MeshError."""
    width = config.d_k
    needs = {
        "an NVIDIA GPU from Ampere (A100) on": (cuda_capability(device) or (0, 0)) >= AMPERE,
        "'model.activation_dtype' = bfloat16": config.kept_dtype == "bfloat16",
        "'model.attention_dropout' = 0": config.attention_dropout == 0,
        "'model.d_k' = 'model.d_v'": width == config.d_v,
        "'model.d_k' a multiple of 8, at most 128": width % 8 == 0 and width <= 128,
    }
    lacking = [need for need, is_met in needs.items() if not is_met]
    if config.attention_kernel == "cudnn" and lacking:
        raise MeshError(f"'model.attention_kernel' = cudnn needs {' and '.join(lacking)}")
    if config.attention_kernel == "auto":
        return "einsum" if lacking else "cudnn"
    return config.attention_kernel


def _compiler_options(config: ExperimentConfig) -> dict[str, bool | int]:
    options: dict[str, bool | int] = {}
    if config.model.kept_dtype == "bfloat16":
        # XLA would leave out every rounding to bfloat16 that it can, and keep arrays in float32.
        options["xla_allow_excess_precision"] = False
    if config.model.attention_kernel == "cudnn":
        # XLA would make one product of those for Q, K and V, and cut it up again for cuDNN.
        options["xla_gpu_dot_merger_threshold_mb"] = 0
    return options


def _boxed_state(
    model: Transformer, config: ExperimentConfig, optimizer: optax.GradientTransformation
) -> TrainState:
    """The first state; its parameters still carry their logical axis names."""
    seed = jax.random.key(config.training.seed)
    params, base = initial_params(model, seed), None
    if config.training.adapters.rank:
        base, params = params, initial_adapters(params, config.training.adapters, seed)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        step=zero,
        params=params,
        opt_state=optimizer.init(params),
        ema=jax.tree.map(jnp.copy, params) if config.training.optimizer.ema_decay else None,
        bad_run=zero,
        skipped=zero,
        base=base,
    )


# A v5e sums gradients in pieces, each beside a product of the backward pass, if it is told to and
# if gradients are not collected into a few large sums first. Of these, libtpu 0.0.42 and 0.0.50 can
# cut up all-reduces but no reduce-scatters; for v5p and v6e, the later one refuses the option.
_V5E_OVERLAP: dict[str, bool | int] = {
    "xla_enable_async_all_reduce": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
    "xla_jf_crs_combiner_threshold_in_bytes": 2**17,
    "xla_tpu_enable_all_reduce_scatter_fusion": False,
    # Products may keep more of their operands on the chip: 0.13 of base's 18.4 ms.
    "xla_tpu_scoped_vmem_limit_kib": 2**15,
}


def _overlap_options(mesh: Mesh) -> dict[str, bool | int]:
    """The compiler's options for a training step's communication."""
    chip = chip_of(mesh.devices.flat[0].device_kind)
    return _V5E_OVERLAP if chip and chip.name == "TPU v5e" and splits_data_only(mesh) else {}


def _weights(config: ExperimentConfig, whole: Any, mesh: Mesh) -> Callable[[TrainState], Any]:
    """The function `Program.weights`; `whole` are its results' shardings, if not the state's."""

    def weights(state: TrainState) -> Any:
        trained = state.params if state.ema is None else state.ema
        return model_weights(config, trained, state.base)

    return weights if whole is None else on_mesh(mesh)(jax.jit(weights, out_shardings=whole))


def _validated(abstract: TrainState, whole: Any) -> Any:
    """`Program.weights` of an abstract state."""
    if abstract.base is not None:
        return abstract.base
    trained = abstract.params if abstract.ema is None else abstract.ema
    if whole is None:
        return trained

    def laid_out(leaf: Any, sharding: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(laid_out, trained, whole)


def _state_layout(
    config: ExperimentConfig, boxed: TrainState, mesh: Mesh
) -> tuple[TrainState, UpdateLayout | None]:
    """The state's shardings between steps, and those of an update that is split over `data`."""
    shardings = shardings_of(boxed, mesh)
    if not config.mesh.shard_optimizer or not 1 < mesh.shape["data"] <= MOST_PARTS:
        return shardings, None

    update = spread_over_data(boxed.params, shardings.params)
    layout = UpdateLayout(shardings.params, update, _scattered_tables(config, boxed.params, update))
    # Between steps a device has its own part only. The next step gathers the others, where the
    # compiler can hide each array behind what the model computes before it needs it. At a step's
    # end nothing would hide them.
    shardings = dataclasses.replace(
        shardings,
        params=layout.update,
        opt_state=spread_over_data(boxed.opt_state, shardings.opt_state),
        ema=spread_over_data(boxed.ema, shardings.ema),
    )
    return shardings, layout


def _scattered_tables(config: ExperimentConfig, boxed: Any, update: Any) -> frozenset[str]:
    """The vocabulary tables whose gradients the step itself sums into parts."""
    # Micro-batches add up whole gradients; adapters train no table.
    if config.training.optimizer.accumulation > 1 or "embedding" not in boxed:
        return frozenset()
    tables, parts = without_names(boxed["embedding"]), update["embedding"]
    used = used_tables(config.model)
    return frozenset(name for name in used if can_scatter(len(tables[name]), parts[name]))


def _called(step: Any, mesh: Mesh) -> Callable[[Any, Batch], Any]:
    """A jitted step `(carried, batch) -> ...`, called with batches of host arrays."""
    return on_mesh(mesh)(lambda carried, batch: step(carried, place_batch(batch, mesh)))


def _lowering(
    step: Any, carried: Any, mesh: Mesh, *, has_weights: bool = False
) -> Callable[[Shape], Lowered]:
    """Lowers a jitted step for one shape of batch; `carried` is abstract."""
    return on_mesh(mesh)(
        lambda shape: step.lower(carried, abstract_batch(shape, mesh, has_weights=has_weights))
    )


def abstract_batch(shape: Shape, mesh: Mesh, *, has_weights: bool = False) -> Any:
    """A `Batch` of this shape without values, its rows split over the mesh."""
    sharding = batch_sharding(mesh)
    lengths = {"src": shape.src_length, "tgt": shape.tgt_length}
    fields = {}
    for name in (field.name for field in dataclasses.fields(Batch)):
        size = shape.rows, lengths[name[:3]]
        dtype = jnp.float32 if name == "tgt_weights" else jnp.int32
        fields[name] = jax.ShapeDtypeStruct(size, dtype, sharding=sharding)
    if not has_weights:
        del fields["tgt_weights"]
    return Batch(**fields)  # type: ignore[arg-type]
