from typing import Any, Callable, Dict, Literal, Tuple, overload

from numpy.typing import NDArray
from typing_extensions import Unpack

from ._words import Words

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
