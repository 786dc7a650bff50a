from typing import Any, Callable, Dict, Literal, NamedTuple, Optional, Tuple, Union, overload

from numpy.typing import NDArray
from typing_extensions import Unpack

from . import reference as reference
from ._library import set_threads as set_threads
from ._library import threads as threads
from ._models import load as load
from ._operators import op as op
from ._runs import runs as runs
from ._train import train as train
from ._words import Words

__version__: str

Array = NDArray[Any]

@overload
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Array]],
) -> Array: ...
@overload
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[True],
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Array]],
) -> Tuple[Array, Array]: ...
@overload
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[True],
    **words: Unpack[Words[Array]],
) -> Tuple[Array, Array]: ...
@overload
def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: bool = ...,
    return_variance: bool = ...,
    **words: Unpack[Words[Array]],
) -> Union[Array, Tuple[Array, Array]]: ...
@overload
def attention_vjp(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Array]],
) -> Tuple[Array, Callable[[Array], Dict[str, Array]]]: ...
@overload
def attention_vjp(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[True],
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Array]],
) -> Tuple[Tuple[Array, Array], Callable[[Array], Dict[str, Array]]]: ...
@overload
def attention_vjp(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[True],
    **words: Unpack[Words[Array]],
) -> Tuple[Tuple[Array, Array], Callable[[Array], Dict[str, Array]]]: ...
@overload
def attention_vjp(
    query: Array,
    key: Array,
    value: Array,
    *,
    return_log_sum_exp: bool = ...,
    return_variance: bool = ...,
    **words: Unpack[Words[Array]],
) -> Tuple[Union[Array, Tuple[Array, Array]], Callable[[Array], Dict[str, Array]]]: ...

class Posterior(NamedTuple):
    out: Array
    variance: Array
    log_determinant: Array
    quadratic: Array

def posterior(query: Array, key: Array, value: Array, *, noise: Optional[Array] = ..., **words: Unpack[Words[Array]]) -> Posterior: ...
def posterior_vjp(
    query: Array, key: Array, value: Array, *, noise: Optional[Array] = ..., **words: Unpack[Words[Array]]
) -> Tuple[Posterior, Callable[..., Dict[str, Array]]]: ...
