"""A flax module with hierarchical attention, trained for some steps: predict the token of eight positions before."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import hark.jax

WIDTH, HEADS, LENGTH, TOKENS, DISTANCE = 64, 4, 64, 16, 8


class Attention(nn.Module):
    """Self-attention [B, L, WIDTH] with a learned table of log G over the distance."""

    @nn.compact
    def __call__(self, x):
        q, k, v = jnp.split(nn.Dense(3 * WIDTH)(x).reshape(*x.shape[:2], 3 * HEADS, -1).transpose(0, 2, 1, 3), 3, 1)
        table = self.param("log_kernel", nn.initializers.zeros, (HEADS, 2 * LENGTH))
        out = hark.jax.attention(q, k, v, structure="hierarchical", causal=True, log_kernel=table)
        return nn.Dense(WIDTH)(out.transpose(0, 2, 1, 3).reshape(x.shape))


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(TOKENS, WIDTH)(tokens)
        x = x + Attention()(nn.LayerNorm()(x))
        return nn.Dense(TOKENS)(nn.LayerNorm()(x))


def loss(parameters, tokens):
    logits = Model().apply(parameters, tokens)[:, DISTANCE:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, :-DISTANCE]).mean()


def main(steps=300):
    optimiser = optax.adam(3e-3)
    key = jax.random.PRNGKey(0)
    parameters = Model().init(key, jnp.zeros((1, LENGTH), jnp.int32))
    state = optimiser.init(parameters)

    @jax.jit
    def step(parameters, state, key):
        tokens = jax.random.randint(key, (16, LENGTH), 0, TOKENS)
        value, gradient = jax.value_and_grad(loss)(parameters, tokens)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(parameters, updates), state, value

    losses = []
    for i in range(steps):
        parameters, state, value = step(parameters, state, jax.random.fold_in(key, i))
        losses.append(float(value))
    print(f"loss {losses[0]:.3f} at the beginning, {losses[-1]:.3f} after {steps} steps")
    return losses


if __name__ == "__main__":
    main()
