from typing import Literal, Tuple, Union, overload

from jax import Array
from typing_extensions import Unpack

from .._words import Words
from ._operators import op as op

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
