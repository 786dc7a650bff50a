from typing import Any, Callable, Literal, Optional, Tuple, Union, overload

from torch import Tensor
from typing_extensions import Unpack

from .._words import Words
from . import nn as nn
from ._operators import op as op

@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Tensor]],
) -> Tensor: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_log_sum_exp: Literal[True],
    return_variance: Literal[False] = ...,
    **words: Unpack[Words[Tensor]],
) -> Tuple[Tensor, Tensor]: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_log_sum_exp: Literal[False] = ...,
    return_variance: Literal[True],
    **words: Unpack[Words[Tensor]],
) -> Tuple[Tensor, Tensor]: ...
@overload
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    return_log_sum_exp: bool = ...,
    return_variance: bool = ...,
    **words: Unpack[Words[Tensor]],
) -> Union[Tensor, Tuple[Tensor, Tensor]]: ...
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    **words: Any,
) -> Tensor: ...
def hugging_face_attention(**words: Unpack[Words[Tensor]]) -> Callable[..., Tuple[Tensor, None]]: ...
def pool() -> Literal["pytorch", "hark"]: ...
