# The arguments of attention besides query, key and value, which NumPy, PyTorch and JAX share.
from typing import Generic, Literal, Optional, Sequence, Tuple, TypeVar, Union

from typing_extensions import TypedDict

Array = TypeVar("Array")
Structure = Literal["dense", "window", "hierarchical", "compressed"]
Normalisation = Literal["softmax", "cme", "stick_breaking"]
Kernel = Literal["exp", "rbf"]
Partition = Literal["neighbour", "sibling"]
CoarseQuery = Literal["default", "mean", "first", "exact"]
Interpolation = Literal["constant", "linear"]
Solver = Literal["factor", "conjugate_gradients"]

class Words(TypedDict, Generic[Array], total=False):
    structure: Structure
    causal: bool
    normalisation: Normalisation
    kernel: Kernel
    scale: Optional[float]
    sigma: Union[float, Array, None]
    ridge: Union[float, Array, None]
    ridge_power: float
    bound: float
    unit: bool
    solver: Solver
    solver_tolerance: float
    window: Optional[int]
    hierarchy_block: int
    partition: Partition
    coarse_query: CoarseQuery
    interpolation: Interpolation
    grid_columns: int
    chunk: Optional[int]
    chunk_slots: Optional[int]
    selected_slots: Optional[int]
    kept_chunks: Optional[int]
    global_slots: Optional[int]
    key_lengths: Union[Sequence[int], Array, None]
    segments: Union[Sequence[Sequence[int]], Array, None]
    offsets: Union[Sequence[int], Array, Tuple[Array, Array], None]
    mask: Optional[Array]
    query_mask: Optional[Array]
    chunk_starts: Optional[Array]
    attention_bias: Optional[Array]
    hierarchical_bias: Optional[Array]
    log_kernel: Optional[Array]
    forget: Optional[Array]
    contextual: Optional[Array]
    query_offset: Optional[int]
    dropout: float
    directed_kernel: bool
    seed: Union[int, Array]
    normalization: Optional[Normalisation]
