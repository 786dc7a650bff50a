from . import attention as attention
from . import attention_vjp as attention_vjp
