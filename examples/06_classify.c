/* 06_classify.c - predicts the class of every input line, with an encoder or an ahca model that was trained on labelled examples.
 *
 *     06_classify                   makes a small untrained model, and classifies three lines, as a demonstration
 *     06_classify MODEL < LINES     MODEL: a run (runs/reviews), a checkpoint in one, or a file of `hark export`
 *
 * A line is the text of an example, or the two texts of a pair with a tab between them; a text longer than the model can read is cut. The
 * program prints class, probability and text. One call classifies as many lines as there is room for, and allocates nothing.
 *
 *     cc 06_classify.c $(pkg-config --cflags --libs hark) -lm
 */
#include <hark/hark.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16, PARTS = 2, SHOWN = 60 };

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "06_classify: %s: %s\n", hark_status_text(status), context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

static void *reserve(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) check(HARK_OUT_OF_MEMORY);
  return memory;
}

/* An encoder of bytes with initial weights. */
static hark_model *make_model(void) {
  static const char description[] =
      "{\"model\": {\"type\": \"gpt\", \"architecture\": \"encoder\", \"classes\": 2, \"layers\": 2, \"heads\": 2, \"key_heads\": 2,"
      " \"width\": 32, \"feed_forward_width\": 64, \"context\": 65, \"activation\": \"gelu\", \"norm\": \"layer_norm\","
      " \"norm_epsilon\": 1e-5, \"positions\": \"sinusoidal\", \"tie_embeddings\": true, \"bias\": true,"
      " \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {\"structure\": \"hierarchical\", \"window\": 0,"
      " \"hierarchy_block\": 8, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": false}}}",
                    vocabulary[] =
                        "{\"format_version\": 1, \"format\": \"text\", \"parts\": 1, \"targets\": \"class\","
                        " \"classes\": [\"negative\", \"positive\"], \"size\": 261, \"symbols\": \"bytes\"}";
  const hark_model_options options = {.struct_size = sizeof options,
                                      .description = description,
                                      .description_bytes = sizeof description - 1,
                                      .vocabulary = vocabulary,
                                      .vocabulary_bytes = sizeof vocabulary - 1};
  hark_model *model;
  check(hark_model_create(context, &options, 1, &model));
  return model;
}

/* Lines that are not yet classified, as tokens one after the other. */
typedef struct batch {
  hark_prediction_shape shape;
  int64_t lines, offsets[AT_ONCE * PARTS + 1];
  int32_t *tokens; /* room for the longest sequences of all lines */
  char texts[AT_ONCE][SHOWN + 1];
  float *logits;
} batch;

/* The text up to a tab, or all of it; false when there is none. */
static int add_sequence(const hark_model *model, batch *b, int64_t sequence, const char *text, size_t bytes) {
  size_t count = 0;
  if (bytes > (size_t)b->shape.longest) bytes = (size_t)b->shape.longest; /* a text has no more tokens than bytes */
  check(hark_model_encode(context, model, text, bytes, true, b->tokens + b->offsets[sequence], &count));
  b->offsets[sequence + 1] = b->offsets[sequence] + (int64_t)count;
  return count > 0;
}

static void add_line(const hark_model *model, batch *b, const char *line, size_t bytes) {
  const char *tab = b->shape.parts == 2 ? memchr(line, '\t', bytes) : NULL;
  const size_t first = tab != NULL ? (size_t)(tab - line) : bytes, second = tab != NULL ? bytes - first - 1 : 0;
  const int64_t sequence = b->lines * b->shape.parts;
  int fine = add_sequence(model, b, sequence, line, first);
  if (b->shape.parts == 2) fine = add_sequence(model, b, sequence + 1, line + first + (tab != NULL), second) && fine;
  if (!fine) {
    fprintf(stderr, "06_classify: a line without %s is left out\n", b->shape.parts == 2 ? "two texts and a tab between them" : "text");
    return;
  }
  const size_t shown = bytes < SHOWN ? bytes : SHOWN;
  for (size_t i = 0; i < shown; i++) b->texts[b->lines][i] = line[i] == '\t' ? ' ' : line[i];
  b->texts[b->lines][shown] = '\0';
  b->lines++;
}

static void predict(const hark_model *model, hark_predictor *predictor, batch *b) {
  const hark_prediction_input input = {.struct_size = sizeof input, .examples = b->lines, .offsets = b->offsets, .tokens = b->tokens};
  const int64_t classes = b->shape.outputs;
  if (b->lines == 0) return;
  check(hark_predictor_run(predictor, &input, b->logits, (size_t)(b->lines * classes)));
  for (int64_t line = 0; line < b->lines; line++) {
    const float *logits = b->logits + line * classes;
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < classes; i++) best = logits[i] > logits[best] ? i : best;
    for (int64_t i = 0; i < classes; i++) sum += exp((double)(logits[i] - logits[best]));
    const char *name = hark_model_class_name(model, best);
    printf("%-12s %.3f  %s\n", name != NULL ? name : "?", 1 / sum, b->texts[line]);
  }
  b->lines = 0;
}

/* A line without its end, in memory that the caller frees; NULL at the end. */
static char *read_line(size_t *bytes) {
  size_t room = 256;
  char *line = reserve(room);
  int c = EOF;
  *bytes = 0;
  while ((c = getchar()) != EOF && c != '\n') {
    if (*bytes == room) {
      char *longer = reserve(room *= 2);
      memcpy(longer, line, *bytes);
      free(line);
      line = longer;
    }
    line[(*bytes)++] = (char)c;
  }
  if (c == '\n' || *bytes > 0) return line;
  free(line);
  return NULL;
}

int main(int argc, char **argv) {
  static const char *const own[] = {"A film that one forgets on the way home.", "I laughed, I wept, I went again.", "It has a beginning."};
  const hark_context_options options = {.struct_size = sizeof options};
  hark_model *model = NULL;
  hark_predictor *predictor = NULL;
  check(hark_context_create(&options, &context));
  if (argc > 1)
    check(hark_model_load(context, argv[1], NULL, &model));
  else
    model = make_model();

  batch b = {.shape = {.struct_size = sizeof b.shape}};
  check(hark_predictor_shape(model, &b.shape));
  if (b.shape.of_tokens || b.shape.features > 0 || b.shape.parts > PARTS) {
    fprintf(stderr, "06_classify: %s does not classify texts\n", argv[1]);
    return 1;
  }
  b.tokens = reserve((size_t)(AT_ONCE * b.shape.parts * b.shape.longest) * sizeof *b.tokens);
  b.logits = reserve((size_t)(AT_ONCE * b.shape.outputs) * sizeof *b.logits);
  const hark_predictor_options room = {.struct_size = sizeof room, .examples = AT_ONCE};
  check(hark_predictor_create(context, model, &room, &predictor));

  if (argc > 1) {
    size_t bytes = 0;
    for (char *line; (line = read_line(&bytes)) != NULL; free(line)) {
      add_line(model, &b, line, bytes);
      if (b.lines == AT_ONCE) predict(model, predictor, &b);
    }
  } else {
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) add_line(model, &b, own[i], strlen(own[i]));
  }
  predict(model, predictor, &b);

  hark_predictor_destroy(&predictor);
  hark_model_destroy(context, &model);
  hark_context_destroy(&context);
  free(b.tokens);
  free(b.logits);
  return 0;
}
