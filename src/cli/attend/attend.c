/* attend.c - hark attend: one attention operator on tensors from a safetensors file, forward and, with `dout`, backward.
 *
 * To compare hark with any program that can write the file. Tensors: attend_tensors.h.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/attend/attend.h"
#include "cli/attend/attend_needs.h"
#include "cli/attend/attend_positional.h"
#include "cli/attend/attend_rotary.h"
#include "core/thread_count.h"

#define AT(field) offsetof(hark_attend_values, field)
#define HIERARCHICAL "structure hierarchical"
#define COMPRESSED "structure compressed"
#define CME "normalisation cme"
static const hark_option options[] = {
    {"input", "input i", HARK_OPTION_STRING, AT(input), "", NULL, NULL, "FILE", "safetensors file with q, k, v and optional tensors", NULL},
    {"output", "output o", HARK_OPTION_STRING, AT(output), "", NULL, NULL, "FILE", "safetensors file to write", NULL},
    {"structure", "structure", HARK_OPTION_ENUM, AT(structure), "dense", "dense|window|hierarchical|compressed", NULL, NULL,
     "which keys a query attends to", NULL},
    {"kernel", "kernel", HARK_OPTION_ENUM, AT(kernel), "exp", "exp|rbf", NULL, NULL, "similarity of a query and a key", NULL},
    {"normalisation", "normalisation", HARK_OPTION_ENUM, AT(normalisation), "softmax", "softmax|cme|stick_breaking", NULL, NULL,
     "how weights are computed from similarities", NULL},
    {"causal", "causal", HARK_OPTION_BOOL, AT(causal), "false", NULL, NULL, NULL, "a query does not attend to later keys", NULL},
    {"scale", "scale", HARK_OPTION_FLOAT, AT(scale), "0", NULL, NULL, NULL,
     "factor of q.k; 0: 1 / sqrt(d), where d is the number of features", "kernel exp"},
    {"sigma", "sigma", HARK_OPTION_FLOAT, AT(sigma), "0", "[0, inf)", NULL, NULL, "sigma in exp(-|q - k|^2 / (2 sigma^2)), above 0",
     "kernel rbf"},
    {"ridge", "ridge", HARK_OPTION_FLOAT, AT(ridge), "0", "[0, inf)", NULL, NULL,
     "c above 0 (with tensor noise, from 0) in the ridge lambda = c n^P, where P is --ridge-power and n the number of keys that are not "
     "masked",
     CME},
    {"ridge-power", "ridge-power", HARK_OPTION_FLOAT, AT(ridge_power), "0", "[0, 1]", NULL, "P",
     "P in the ridge lambda = c n^P; 0: lambda = c; not with --causal", CME},
    {"solver", "solver", HARK_OPTION_ENUM, AT(solver), "factor", "factor|conjugate-gradients", NULL, NULL,
     "how the system of the keys is solved; factor: memory grows with the square of their number; conjugate-gradients, for long contexts: "
     "memory grows with their number; not with --causal",
     CME},
    {"solver-tolerance", "solver-tolerance", HARK_OPTION_FLOAT, AT(solver_tolerance), "0", "[0, 1)", NULL, NULL,
     "the residual |M x - b| / |b| to which systems are solved; 0: 1e-6 for f32, 1e-10 for f64", CME ", solver conjugate-gradients"},
    {"bound", "bound", HARK_OPTION_FLOAT, AT(bound), "0", "[0, inf)", NULL, "C",
     "a number that q.k never exceeds; it is subtracted from q.k before the exponential, so that exponents stay in range; results do not "
     "change",
     CME ", kernel exp"},
    {"unit", "unit", HARK_OPTION_BOOL, AT(unit), "false", NULL, NULL, NULL,
     "first divide every query and key by its Euclidean length; the bound is then 1", CME},
    {"hierarchy-block", "hierarchy-block", HARK_OPTION_INT, AT(hierarchy_block), "16", "[2, 1048576]", NULL, "NR",
     "number of tokens in a block, an even number", HIERARCHICAL},
    {"partition", "partition", HARK_OPTION_ENUM, AT(partition), "neighbour", "neighbour|sibling", NULL, NULL,
     "which blocks a block attends to; neighbour: its neighbours; sibling: the other half of its parent", HIERARCHICAL},
    {"coarse-query", "coarse-query", HARK_OPTION_ENUM, AT(coarse_query), "default", "default|mean|first|exact", NULL, NULL,
     "the query that represents a cell (a group of 2, 4, 8, ... tokens) when it attends to coarse keys; mean: the mean of its "
     "queries; first: its first query; exact: each query by itself; default: first if causal, otherwise mean",
     HIERARCHICAL},
    {"interpolation", "interpolation", HARK_OPTION_ENUM, AT(interpolation), "constant", "constant|linear", NULL, NULL,
     "how a level passes its sums to the level below", HIERARCHICAL},
    {"grid-columns", "grid-columns", HARK_OPTION_INT, AT(grid_columns), "0", "[0, 16777216]", NULL, "C",
     "the rows are the pixels of a picture with C columns, whose rows and columns are halved together; 0: no picture",
     HIERARCHICAL ", causal false"},
    {"chunk", "chunk", HARK_OPTION_INT, AT(chunk), "64", "[1, 1048576]", NULL, "M",
     "number of rows of a chunk; with tensor chunk_starts the smallest number", COMPRESSED},
    {"chunk-slots", "chunk-slots", HARK_OPTION_INT, AT(chunk_slots), "1", "[1, 1048576]", NULL, "C",
     "number of slots of a chunk: means of keys and of values over parts of its rows", COMPRESSED},
    {"selected-slots", "selected-slots", HARK_OPTION_INT, AT(selected_slots), "16", "[1, 4096]", NULL, "K",
     "number of slots that a query attends to: those with the highest logits", COMPRESSED},
    {"kept-chunks", "kept-chunks", HARK_OPTION_INT, AT(kept_chunks), "0", "[0, inf)", NULL, "N",
     "number of chunks from whose slots a query selects: the last ones before those near it; 0: all", COMPRESSED},
    {"global-slots", "global-slots", HARK_OPTION_INT, AT(global_slots), "0", "[0, 1048576]", NULL, "G",
     "number of slots into which the older chunks are merged; 0: a query does not attend to older chunks", COMPRESSED ", kept-chunks >0"},
    {"window", "window", HARK_OPTION_INT, AT(window), "0", "[0, inf)", NULL, NULL,
     "number of positions on each side that a query attends to", "structure window"},
    {"query-offset", "query-offset", HARK_OPTION_INT, AT(query_offset), "0", NULL, NULL, NULL,
     "position of the first query among the keys; not given: 0, but with --causal the position that puts the "
     "last query at the last key",
     "causal true or structure window|hierarchical or positional given or rotary >0"},
    {"rotary", "rotary", HARK_OPTION_FLOAT, AT(rotary), "0", "[0, inf)", NULL, "BASE",
     "rotate q and k by their positions, where pair j has the rate BASE^(-2j/d); 0: no rotation", NULL},
    {"rotary-pairs", "rotary-pairs", HARK_OPTION_ENUM, AT(rotary_pairs), "interleaved", "interleaved|half", NULL, NULL,
     "features of pair j; interleaved: 2j and 2j+1; half: j and j + d/2", "rotary >0"},
    {"rotary-fraction", "rotary-fraction", HARK_OPTION_FLOAT, AT(rotary_fraction), "1", "(0, 1]", NULL, "P",
     "this fraction of the pairs is rotated: the pairs with the highest rates", "rotary >0"},
    {"rotary-scaling", "rotary-scaling", HARK_OPTION_ENUM, AT(rotary_scaling), "none", "none|linear|ntk|yarn|llama3|dynamic", NULL, NULL,
     "change of the rates for contexts longer than in training", "rotary >0"},
    {"rotary-factor", "rotary-factor", HARK_OPTION_FLOAT, AT(rotary_factor), "1", "[1, inf)", NULL, "S",
     "factor of the scaling: the context divided by the context in training", "rotary-scaling !none"},
    {"rotary-context", "rotary-context", HARK_OPTION_INT, AT(rotary_context), "0", "[0, 16777216]", NULL, "N", "the context in training",
     "rotary-scaling yarn|llama3|dynamic"},
    {"positional", "positional", HARK_OPTION_LIST, AT(positional), "", NULL, NULL, "EXPR",
     "kernel of the token distance, such as decay(l=12)*periodic (hark positional explains such expressions); given once "
     "for all heads, or once per head",
     NULL},
    {"directed-kernel", "directed-kernel", HARK_OPTION_BOOL, AT(directed_kernel), "false", NULL, NULL, NULL,
     "tensor log_kernel has separate numbers for keys before and after the query (below)", "causal false"},
    {"dropout", "dropout", HARK_OPTION_FLOAT, AT(dropout), "0", "[0, 1)", NULL, "P", "probability of dropout on the normalised weights",
     NULL},
    {"seed", "seed", HARK_OPTION_INT, AT(seed), "0", "[0, inf)", NULL, NULL, "seed of dropout", "dropout >0"},
    {"backend", "backend", HARK_OPTION_STRING, AT(backend), "cpu", NULL, NULL, "NAME", "cpu or reference", NULL},
    {"threads", "threads", HARK_OPTION_INT, AT(threads), "0", "[0, 4096]", NULL, NULL, HARK_THREADS_HELP, NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(hark_attend_values), false};

static hark_status complain(hark_invocation *call, const char *name, const char *text) {
  return hark_options_complain(call->context, call->options, name, "%s", text);
}

static hark_status check(hark_invocation *call) {
  hark_attend_values *v = call->values[0];
  v->has_query_offset = hark_command_is_given(call, "query-offset");
  if (v->input[0] == '\0') HARK_TRY(complain(call, "input", "missing, expected a file"));
  if (v->output[0] == '\0') HARK_TRY(complain(call, "output", "missing, expected a file"));
  if (v->normalisation == HARK_ATTEND_CME && v->ridge == 0 && !hark_command_is_given(call, "ridge"))
    HARK_TRY(complain(call, "normalisation ridge", "cme needs --ridge X above 0, or --ridge 0 with tensor noise"));
  if (v->structure == HARK_ATTEND_HIERARCHICAL && v->query_offset != 0)
    HARK_TRY(complain(call, "query-offset structure", "with --structure hierarchical, expected 0: queries and keys share one hierarchy"));
  if (v->structure == HARK_ATTEND_COMPRESSED && !v->causal) HARK_TRY(complain(call, "structure causal", "compressed needs --causal"));
  if (v->structure == HARK_ATTEND_COMPRESSED && v->query_offset != 0)
    HARK_TRY(complain(call, "query-offset structure", "with --structure compressed, expected 0: queries and keys share their chunks"));
  if (v->structure == HARK_ATTEND_COMPRESSED && v->positional.count > 0 && v->global_slots > 0)
    HARK_TRY(complain(call, "positional global-slots",
                      "with --global-slots, expected none: the rows of a global slot have ever more distances"));
  HARK_TRY(hark_attend_positional_check(call));
  if (v->structure == HARK_ATTEND_WINDOW && !hark_command_is_given(call, "window"))
    HARK_TRY(complain(call, "structure window", "window needs --window W"));
  HARK_TRY(hark_attend_rotary_check(call));
  if (v->kernel == HARK_ATTEND_RBF && v->sigma == 0) HARK_TRY(complain(call, "kernel sigma", "rbf needs --sigma X above 0"));
  return HARK_OK;
}

/* Zeros in the shape of `like`; absent when `like` is absent. */
static hark_status create_like(hark_context *context, const hark_tensor *like, hark_tensor *out) {
  return like->type == HARK_NONE ? HARK_OK : hark_tensor_create(context, like->type, like->rank, like->shape, out);
}

/* Whether the file requests gradients. */
static bool has_gradients(const hark_attend_tensors *t) {
  return t->dout.type != HARK_NONE || t->dvariance.type != HARK_NONE || t->dlog_determinant.type != HARK_NONE ||
         t->dquadratic.type != HARK_NONE;
}

static hark_attention_desc describe(const hark_attend_values *v, const hark_attend_tensors *t) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = t->query.type;
  desc.structure = (hark_attention_structure)v->structure;
  if (v->structure == HARK_ATTEND_HIERARCHICAL) {
    desc.hierarchy_block = v->hierarchy_block;
    desc.grid_columns = v->grid_columns;
    desc.partition = (hark_hierarchy_partition)v->partition;
    desc.coarse_query = (hark_coarse_query)v->coarse_query;
    desc.interpolation = (hark_hierarchy_interpolation)v->interpolation;
    desc.has_hierarchical_bias = t->hierarchical_bias.type != HARK_NONE;
  }
  if (v->structure == HARK_ATTEND_COMPRESSED) {
    desc.chunk = v->chunk;
    desc.chunk_slots = v->chunk_slots;
    desc.selected_slots = v->selected_slots;
    desc.kept_chunks = v->kept_chunks;
    desc.global_slots = v->global_slots;
    desc.has_chunk_starts = t->chunk_starts.type != HARK_NONE;
  }
  desc.kernel = v->kernel == HARK_ATTEND_RBF ? HARK_KERNEL_RBF : HARK_KERNEL_EXP;
  if (v->normalisation == HARK_ATTEND_CME) {
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.has_ridge = t->ridge.type != HARK_NONE;
    desc.has_sigma = t->sigma.type != HARK_NONE;
    if (!desc.has_ridge) desc.ridge = v->ridge;
    desc.ridge_power = v->ridge_power;
    desc.solver = v->solver == HARK_ATTEND_CONJUGATE_GRADIENTS ? HARK_SOLVER_CONJUGATE_GRADIENTS : HARK_SOLVER_FACTOR;
    desc.solver_tolerance = v->solver_tolerance;
    desc.bound = v->bound;
    desc.unit = v->unit;
    desc.has_noise = t->noise.type != HARK_NONE;
    desc.has_dvariance = t->dvariance.type != HARK_NONE;
    desc.has_dlog_determinant = t->dlog_determinant.type != HARK_NONE;
    desc.has_dquadratic = t->dquadratic.type != HARK_NONE;
  }
  if (v->normalisation == HARK_ATTEND_STICK_BREAKING) desc.normalisation = HARK_NORMALISATION_STICK_BREAKING;
  desc.batch = t->query.shape[0];
  desc.heads = t->query.shape[1];
  desc.key_heads = t->key.shape[1];
  desc.query_length = t->query.shape[2];
  desc.key_length = t->key.shape[2];
  desc.head_dim = t->query.shape[3];
  desc.value_dim = t->value.shape[3];
  desc.causal = v->causal;
  desc.scale = v->scale;
  if (t->logit_factor != 0) desc.scale = t->logit_factor * (v->scale != 0 ? v->scale : 1 / sqrt((double)t->query.shape[3]));
  if (!desc.has_sigma) desc.sigma = v->sigma;
  desc.window = v->window;
  desc.dropout = v->dropout;
  desc.has_bias = t->bias.type != HARK_NONE;
  desc.has_mask = t->mask.type != HARK_NONE || t->query_mask.type != HARK_NONE;
  desc.has_segments = t->segments != NULL;
  desc.has_log_kernel = t->log_kernel.type != HARK_NONE || v->positional.count > 0;
  desc.directed_kernel = v->directed_kernel || hark_attend_positional_directed(v);
  desc.has_forget = t->forget.type != HARK_NONE;
  desc.contextual_positions = t->contextual.type != HARK_NONE ? t->contextual.shape[1] : 0;
  desc.forward_only = !has_gradients(t);
  return desc;
}

/* [1] <- value, in the type of the tensors. */
static hark_status create_number(hark_context *context, hark_type type, double value, hark_tensor *out) {
  const int64_t one = 1;
  const float rounded = (float)value;
  HARK_TRY(hark_tensor_create(context, type, 1, &one, out));
  return hark_tensor_write(context, out, type == HARK_F64 ? (const void *)&value : (const void *)&rounded);
}

static hark_status write_sigma_gradient(hark_context *context, double sigma, const hark_attention_args *args, hark_attend_tensors *t) {
  double gradient;
  HARK_TRY(hark_attention_sigma_gradient(context, sigma, &args->query, &t->dquery, &args->key, &t->dkey, &gradient));
  return create_number(context, t->query.type, gradient, &t->dsigma);
}

static hark_status backward(hark_context *context, const hark_attend_values *v, const hark_attend_rotary *rotary, hark_attend_tensors *t,
                            const hark_attention_plan *plan, hark_attention_args *args) {
  HARK_TRY(create_like(context, &t->query, &t->dquery));
  HARK_TRY(create_like(context, &t->key, &t->dkey));
  HARK_TRY(create_like(context, &t->value, &t->dvalue));
  HARK_TRY(create_like(context, &t->bias, &t->dbias));
  HARK_TRY(create_like(context, &t->log_kernel, &t->dlog_kernel));
  HARK_TRY(create_like(context, &t->forget, &t->dforget));
  HARK_TRY(create_like(context, &t->hierarchical_bias, &t->dhierarchical_bias));
  HARK_TRY(create_like(context, &t->contextual, &t->dcontextual));
  HARK_TRY(create_like(context, &t->noise, &t->dnoise));
  HARK_TRY(create_like(context, &t->ridge, &t->dridge));
  HARK_TRY(create_like(context, &t->sigma, &t->dsigma));
  args->dout = t->dout;
  args->dquery = t->dquery;
  args->dkey = t->dkey;
  args->dvalue = t->dvalue;
  args->dattention_bias = t->dbias;
  args->dlog_kernel = t->dlog_kernel;
  args->dforget = t->dforget;
  args->dhierarchical_bias = t->dhierarchical_bias;
  args->dcontextual = t->dcontextual;
  args->dvariance = t->dvariance;
  args->dlog_determinant = t->dlog_determinant;
  args->dquadratic = t->dquadratic;
  args->dnoise = t->dnoise;
  args->dridge = t->dridge;
  args->dsigma = t->dsigma;
  HARK_TRY(hark_attention_backward(context, plan, args));
  if (v->kernel == HARK_ATTEND_RBF && v->normalisation != HARK_ATTEND_CME) HARK_TRY(write_sigma_gradient(context, v->sigma, args, t));
  return v->rotary == 0 ? HARK_OK : hark_attend_rotary_turn_back(context, v, rotary, t);
}

/* The same shape and strides of 0: every row is this row of zeros. */
static hark_status wrap_zeros(hark_context *context, const hark_tensor *zeros, const hark_tensor *like, hark_tensor *out) {
  const int64_t strides[HARK_MAX_RANK] = {[3] = 1};
  return hark_tensor_wrap(context, zeros->data, like->type, like->rank, like->shape, strides, out);
}

/* Computes with queries, keys, values and gates of zeros, so that only masks, lengths and tables determine what a row sees. */
static hark_status compute_seen(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                const hark_tensor *zeros, const hark_tensor *gates, hark_tensor *out, hark_attend_tensors *t) {
  hark_attention_args blank = *args;
  HARK_TRY(wrap_zeros(context, zeros, &args->query, &blank.query));
  HARK_TRY(wrap_zeros(context, zeros, &args->key, &blank.key));
  HARK_TRY(wrap_zeros(context, zeros, &args->value, &blank.value));
  HARK_TRY(create_like(context, &t->log_sum_exp, &t->seen));
  blank.forget = *gates;
  blank.out = *out;
  blank.log_sum_exp = t->seen;
  return hark_attention_forward(context, plan, &blank);
}

/* After all results: `saved` is written again. With stick-breaking -infinity is the number of a stick that is used up. */
static hark_status find_seen(hark_context *context, const hark_attend_values *v, const hark_attention_plan *plan,
                             const hark_attention_args *args, hark_attend_tensors *t) {
  const int64_t width = hark_max(t->query.shape[3], t->value.shape[3]);
  hark_tensor zeros = {0}, gates = {0}, out = {0};
  bool empty = false;
  if (v->normalisation != HARK_ATTEND_SOFTMAX) return HARK_OK;
  HARK_TRY(hark_attend_has_empty_rows(context, t, &empty));
  if (!empty) return HARK_OK;
  hark_status status = hark_tensor_create(context, t->query.type, 1, &width, &zeros);
  if (status == HARK_OK) status = create_like(context, &t->forget, &gates);
  if (status == HARK_OK) status = create_like(context, &t->out, &out);
  if (status == HARK_OK) status = compute_seen(context, plan, args, &zeros, &gates, &out, t);
  hark_tensor_destroy(context, &zeros);
  hark_tensor_destroy(context, &gates);
  hark_tensor_destroy(context, &out);
  return status;
}

/* After the plan's memory was allocated. */
static hark_status execute(hark_context *context, const hark_attend_values *v, const hark_attend_rotary *rotary, hark_attend_tensors *t,
                           const hark_attention_plan *plan, void *saved, void *workspace) {
  const int64_t rows[] = {t->query.shape[0], t->query.shape[1], t->query.shape[2]};
  const int64_t out[] = {rows[0], rows[1], rows[2], t->value.shape[3]};
  HARK_TRY(hark_tensor_create(context, t->query.type, 4, out, &t->out));
  const bool cme = v->normalisation == HARK_ATTEND_CME;
  HARK_TRY(hark_tensor_create(context, t->query.type, 3, rows, cme ? &t->variance : &t->log_sum_exp));
  if (cme) HARK_TRY(hark_tensor_create(context, t->query.type, 3, rows, &t->log_determinant));
  if (cme) HARK_TRY(hark_tensor_create(context, t->query.type, 4, out, &t->quadratic));
  hark_attention_report report = {0};
  hark_attention_args args = {.struct_size = sizeof args,
                              .query = t->query,
                              .key = t->key,
                              .value = t->value,
                              .out = t->out,
                              .log_sum_exp = t->log_sum_exp,
                              .key_lengths = t->key_lengths,
                              .segments = t->segments,
                              .has_query_offset = v->has_query_offset,
                              .query_offset = v->query_offset,
                              .mask = t->mask,
                              .attention_bias = t->bias,
                              .log_kernel = t->log_kernel,
                              .forget = t->forget,
                              .hierarchical_bias = t->hierarchical_bias,
                              .contextual = t->contextual,
                              .query_mask = t->query_mask,
                              .chunk_starts = t->chunk_starts,
                              .ridge = t->ridge,
                              .sigma = t->sigma,
                              .noise = t->noise,
                              .variance = t->variance,
                              .log_determinant = t->log_determinant,
                              .quadratic = t->quadratic,
                              .report = cme ? &report : NULL,
                              .dropout = {.seed = (uint64_t)v->seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_ATTENTION)},
                              .saved = saved,
                              .workspace = workspace};
  if (v->rotary > 0) {
    HARK_TRY(hark_attend_rotary_turn(context, v, rotary, t));
    args.query = t->turned_query;
    args.key = t->turned_key;
  }
  HARK_TRY(hark_attention_forward(context, plan, &args));
  if (report.pivots > 0)
    fprintf(stderr,
            "hark attend: %" PRId64 " pivots were mended, the largest change: item %" PRId64 ", head %" PRId64 ", key row %" PRId64
            ", by %g\n",
            report.pivots, report.item, report.head, report.row, report.amount);
  if (has_gradients(t)) HARK_TRY(backward(context, v, rotary, t, plan, &args));
  return find_seen(context, v, plan, &args, t);
}

/* Ridge and sigma as inputs, so that they have gradients. A plan with the given numbers, which may become infinite or 0 as inputs, refuses
 * them as they were given. */
static hark_status make_parameters(hark_context *context, const hark_attend_values *v, hark_attend_tensors *t) {
  if (v->normalisation != HARK_ATTEND_CME || !has_gradients(t)) return HARK_OK;
  const hark_attention_desc given = describe(v, t);
  hark_attention_plan *plan;
  HARK_TRY(hark_attention_plan_create(context, &given, &plan));
  hark_attention_plan_destroy(context, &plan);
  HARK_TRY(create_number(context, t->query.type, v->ridge, &t->ridge));
  return v->kernel == HARK_ATTEND_RBF ? create_number(context, t->query.type, v->sigma, &t->sigma) : HARK_OK;
}

static hark_status plan_and_execute(hark_invocation *call, const hark_attend_values *v, const hark_attend_rotary *rotary,
                                    hark_attend_tensors *t) {
  hark_context *context = call->context;
  HARK_TRY(make_parameters(context, v, t));
  const hark_attention_desc desc = describe(v, t);
  hark_attention_plan *plan;
  HARK_TRY(hark_attention_plan_create(context, &desc, &plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const size_t scratch = sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace;
  void *saved = NULL, *workspace = NULL;
  const int64_t distances = hark_attention_plan_distances(plan, v->has_query_offset, v->query_offset);
  const bool cells = distances > 2 * hark_attention_plan_desc(plan)->hierarchy_block; /* Nr 2^M: with one level there are none */
  const int64_t columns = t->log_kernel.type != HARK_NONE ? t->log_kernel.shape[1] : 0,
                have = desc.directed_kernel ? (columns + 1) / 2 : columns;
  if (columns > 0 && have < distances && v->structure == HARK_ATTEND_HIERARCHICAL && cells)
    hark_command_warn(call, "log_kernel has %" PRId64 " distances and the cells need %" PRId64 ": their means leave out the missing ones",
                      have, distances);
  hark_status status = hark_attend_positional_table(context, v, plan, t);
  if (status == HARK_OK)
    status = hark_command_check_memory(context, "attention", (double)sizes.saved + (double)scratch); /* a factor grows with L^2 */
  if (status == HARK_OK) status = hark_backend_allocate(context, sizes.saved, &saved);
  if (status == HARK_OK) status = hark_backend_allocate(context, scratch, &workspace);
  if (status == HARK_OK) status = execute(context, v, rotary, t, plan, saved, workspace);
  if (status == HARK_OK) {
    char text[512];
    hark_attention_plan_print(plan, text, sizeof text);
    fprintf(stderr, "hark attend: %s\n", text);
  }
  hark_backend_release(context, saved, sizes.saved);
  hark_backend_release(context, workspace, scratch);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

static hark_status attend(hark_invocation *call, const hark_attend_values *v, hark_attend_tensors *t) {
  hark_attend_rotary rotary = {0};
  HARK_TRY(hark_attend_needs_check(call->context, v, t));
  if (v->directed_kernel && t->log_kernel.type == HARK_NONE)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--directed-kernel needs tensor log_kernel, expected [H or 1, 2 T - 1]");
  if (v->normalisation == HARK_ATTEND_CME && v->ridge == 0 && t->noise.type == HARK_NONE)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--ridge 0 needs tensor noise, expected a ridge above 0");
  hark_status status = hark_attend_rotary_open(call->context, v, t, &rotary);
  const double magnitude = hark_rotary_magnitude(&rotary.spec);
  if (magnitude != 1) t->logit_factor = magnitude * magnitude;
  if (status == HARK_OK) status = plan_and_execute(call, v, &rotary, t);
  if (status == HARK_OK) status = hark_attend_positional_gradient(call->context, v, t);
  hark_attend_rotary_close(call->context, &rotary);
  return status;
}

static hark_status run(hark_invocation *call) {
  const hark_attend_values *v = call->values[0];
  HARK_TRY(hark_command_open(call, v->backend, v->threads, (uint64_t)v->seed, false));
  hark_attend_tensors tensors = {0};
  hark_status status = hark_attend_read(call->context, v->input, &tensors);
  if (status == HARK_OK) {
    status = attend(call, v, &tensors);
    if (status != HARK_OK) hark_fail_prefix(call->context, "%s: ", v->input);
  }
  if (status == HARK_OK) status = hark_attend_write(call->context, v->output, &tensors);
  if (status == HARK_OK) status = hark_attend_warn(call, &tensors);
  hark_attend_free(call->context, &tensors);
  return status;
}

const hark_command hark_command_attend = {
    .name = "attend",
    .arguments = "",
    .summary = "run one attention operator on tensors from a safetensors file",
    .notes =
        "Input, all F32 or all F64: q [B,H,Lq,d], k [B,Hkv,Lk,d], v [B,Hkv,Lk,dv]. Inputs with L in their shape need\n"
        "Lq = Lk, and L is this number. Optional input:\n"
        "  key_lengths [B] (I64)                       segments [B,L] (I64, negative: padding)\n"
        "  mask (U8 or BOOL, 0: masked)                attention_bias (added to the logits); both broadcast to [B,H,Lq,Lk]\n"
        "  log_kernel [H or 1, distances]              forget [B,H,Lk]\n"
        "  contextual [H or 1,N,d] (the table of contextual positions; needs --causal)\n"
        "  rotary_rates [pairs] (radians per token; they replace the rates of BASE; with --rotary-scaling, each is multiplied by\n"
        "    the factor by which the scaling changes the rate that it replaces)\n"
        "  dout [B,H,Lq,dv], which requests gradients\n"
        "  with cme: noise [B,H,Lk], added to lambda for each key; dvariance and dlog_determinant [B,H,Lq] and\n"
        "    dquadratic [B,H,Lq,dv], which request gradients, with or without dout\n"
        "With --directed-kernel, log_kernel is [H or 1, 2 * distances - 1]. Let n be the position of the query minus the position of\n"
        "the key. The value for n is in column (distances - 1 + n).\n"
        "Differences with --structure hierarchical:\n"
        "  log_kernel needs a value for every distance in the hierarchy; the number of distances is the smallest NR * 2^n that is\n"
        "    at least L\n"
        "  query_mask [B or 1,L] (U8 or BOOL, 0: not a query) and hierarchical_bias [H or 1,4*NR-1] are optional input\n"
        "  mask is by key only, [B or 1,1,1,L]\n"
        "With --structure compressed, chunk_starts [B or 1,L] (U8 or BOOL, not 0: a chunk begins) is optional input, and mask is by\n"
        "key only, [B or 1,1,1,L].\n"
        "Output: out, and log_sum_exp [B,H,Lq] or, with cme, variance and log_determinant [B,H,Lq] and quadratic [B,H,Lq,dv]\n"
        "(V^T M^-1 V of each column of v). If gradients are requested, also dq, dk, dv, dattention_bias, dlog_kernel, dforget,\n"
        "dcontextual, dhierarchical_bias, drotary_rates, dridge [1] and dnoise with cme, and dsigma [1] with rbf. With --positional\n"
        "also dpositional [kernels, parameters], with respect to the parameters as in EXPR (l, tau, ...) and in their order.\n"
        "  hark attend --input in.safetensors --output out.safetensors --causal --rotary 10000 --rotary-pairs half\n",
    .tables = {&table},
    .check = check,
    .run = run,
};
