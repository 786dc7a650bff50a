"""Replacements for the attention of PyTorch and of Hugging Face's models."""

import torch

from . import _frames


def _dropout_seed() -> int:
    """From PyTorch's generator, so that torch.manual_seed makes dropout repeatable."""
    return int(torch.randint(2**62, ()).item())


def _terms(attn_mask):
    """(mask, attention_bias) of an attn_mask, which is boolean or added to the logits."""
    if attn_mask is None:
        return None, None
    if not isinstance(attn_mask, torch.Tensor):
        raise TypeError(f"scaled_dot_product_attention: attn_mask is {type(attn_mask).__name__}, expected torch.Tensor")
    return (attn_mask, None) if attn_mask.dtype is torch.bool else (None, attn_mask)


def _four_dimensions(x):
    """[..., L, d] as [B, H, L, d]."""
    if x.dim() == 4:
        return x
    if x.dim() < 2:
        raise ValueError(f"scaled_dot_product_attention: a tensor has shape {list(x.shape)}, expected [..., L, d]")
    return x.reshape(1, -1, *x.shape[-2:]) if x.dim() < 4 else x.flatten(0, -4)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **words):
    """torch.nn.functional.scaled_dot_product_attention computed by hark: the same arguments, the same results, on the CPU.

    query [..., H, Lq, d], key [..., Hkv, Lk, d], value [..., Hkv, Lk, dv]. attn_mask: boolean (False masks the entry) or added to the
    logits; it has a gradient. is_causal: query n sees the keys 0 .. n, also with Lq != Lk. **words: further arguments of
    hark.torch.attention, such as structure="hierarchical". A row without a visible key gives zeros.
    """
    if attn_mask is not None and is_causal:
        raise ValueError("scaled_dot_product_attention: attn_mask and is_causal contradict each other, expected one of them")
    if not enable_gqa and query.dim() > 2 and key.dim() > 2 and query.shape[-3] != key.shape[-3]:
        raise ValueError(
            f"scaled_dot_product_attention: query has {query.shape[-3]} heads and key {key.shape[-3]}; enable_gqa=True allows this"
        )
    mask, bias = _terms(attn_mask)
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        if attn_mask is not None and attn_mask.dim() > 2 and query.dim() > 4:
            mask, bias = [None if x is None else x.expand(*query.shape[:-2], *x.shape[-2:]).flatten(0, -4) for x in (mask, bias)]
        elif attn_mask is not None and query.dim() < 4 and attn_mask.dim() < 4:
            pass
        out = scaled_dot_product_attention(
            _four_dimensions(query),
            _four_dimensions(key),
            _four_dimensions(value),
            mask if bias is None else bias,
            dropout_p,
            is_causal,
            scale,
            enable_gqa,
            **words,
        )
        return out.reshape(*query.shape[:-1], value.shape[-1])
    if bias is not None and bias.dtype != query.dtype and query.dtype in _frames.KINDS:
        bias = bias.to(query.dtype)
    return _call(query, key, value, mask, bias, dropout_p, is_causal, scale, words)


def _call(query, key, value, mask, bias, dropout, causal, scale, words):
    from . import attention

    offset = 0 if causal and query.shape[2] != key.shape[2] else None
    return attention(
        query,
        key,
        value,
        mask=mask,
        attention_bias=bias,
        causal=causal,
        scale=scale,
        query_offset=offset,
        dropout=dropout,
        seed=_dropout_seed() if dropout else 0,
        **words,
    )


def hugging_face_attention(**words):
    """A function for transformers.AttentionInterface.register(NAME, ...): hark's attention with these arguments in a model of Hugging Face.

        AttentionInterface.register("hark_hierarchical", hark.torch.hugging_face_attention(structure="hierarchical"))
        model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="hark_hierarchical")

    The model's mask is used where there is one, as is; without one a module that is causal (is_causal) is computed causally.
    """

    def forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **_):
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        mask, bias = _terms(attention_mask)
        if bias is not None:
            bias = bias[..., : key.shape[2]].to(query.dtype)
        elif mask is not None:
            mask = mask[..., : key.shape[2]]
        use_causal = bool(causal) and attention_mask is None and query.shape[2] > 1
        out = _call(query, key, value, mask, bias, dropout, use_causal, scaling, words)
        return out.transpose(1, 2).contiguous(), None

    return forward
