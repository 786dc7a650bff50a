/* test_plot.c - hark plot --positional and --evaluation, and what a run's metrics say of its positional kernels. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define TINY "--data text.txt --layers 2 --heads 2 --width 8 --context 16 --batch 2 --threads 1 --log-every 2 --evaluate-every 2"
#define KERNEL "--positions none --positional 'bank[2](decay)+window(5)'"

static void hark(int expected, const char *words) { command_expect(folder, words, expected, "", "", &output); }

/* The lines of a run's metrics that have `word`; those of kernels have all words of all kernels. */
static int lines_with(const char *run, const char *word, double *last) {
  char path[TEST_PATH_BYTES + 64];
  json_error_t error;
  int count = 0;
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", run);
  char *text = test_file_text(folder, path);
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    json_t *object = json_loads(line, 0, &error);
    const json_t *value = json_object_get(object, word);
    if (value != NULL) {
      *last = json_number_value(value);
      count++;
    }
    json_decref(object);
  }
  free(text);
  return count;
}

/* At the beginning and at every evaluation; at last what the checkpoint holds. Going on repeats none. */
static void kernels_stand_in_the_metrics(void **state) {
  (void)state;
  static const char *const scopes[] = {"model", "layer", "head"}, *const owners[] = {"model", "layer1", "layer1.head1"};
  for (int i = 0; i < 3; i++) {
    char words[512], run[32], name[2][96];
    double value[2] = {0, 0};
    (void)snprintf(run, sizeof run, "run-%s", scopes[i]);
    (void)snprintf(words, sizeof words, "train " TINY " " KERNEL " --positional-scope %s --steps 4 --out %s", scopes[i], run);
    hark(0, words);
    for (int copy = 0; copy < 2; copy++) {
      (void)snprintf(name[copy], sizeof name[copy], "positional/%s/9.decay.l/%d", owners[i], copy);
      assert_int_equal(lines_with(run, name[copy], &value[copy]), 3); /* steps 0, 2, 4 */
    }
    (void)snprintf(words, sizeof words, "info %s --json", run);
    hark(0, words);
    json_t *object = command_json(&output);
    const json_t *kernels = json_object_get(json_object_get(object, "positional"), "kernels");
    const char *learned = json_string_value(json_object_get(json_array_get(kernels, json_array_size(kernels) - 1), "expression"));
    double sigma2[2], l[2];
    assert_non_null(learned);
    assert_int_equal(sscanf(learned, "bank[2](decay(sigma2=[%lf,%lf],l=[%lf,%lf]))", &sigma2[0], &sigma2[1], &l[0], &l[1]), 4);
    assert_true(l[0] == value[0] && l[1] == value[1]);
    json_decref(object);
    (void)snprintf(words, sizeof words, "train --resume --steps 6 --out %s", run);
    hark(0, words);
    assert_int_equal(lines_with(run, name[0], &value[0]), 4);
  }
  hark(0, "train " TINY " --steps 2 --out plain");
  double none;
  assert_int_equal(lines_with("plain", "positional/model/9.decay.l/0", &none), 0);
}

/* What a head of its own expression has learned stands under its own names, and comes back with the run. */
static void kernels_of_heads_have_their_own_names(void **state) {
  (void)state;
  double value = 0;
  hark(0, "train " TINY
          " --positions none --positional 'alibi|decay(l=3!)|table[4]|bank[2](rbf)' --positional-scope head --steps 4 --out own");
  assert_int_equal(lines_with("own", "positional/layer0.head0/1.alibi.m/0", &value), 3);
  assert_int_equal(lines_with("own", "positional/layer1.head0/19.table.factor/3", &value), 3);
  assert_int_equal(lines_with("own", "positional/layer0.head1/1.alibi.m/0", &value), 0);
  hark(0, "info own --json");
  json_t *object = command_json(&output);
  const json_t *kernel = json_object_get(object, "positional"), *rows = json_object_get(kernel, "kernels");
  static const char *const begins[] = {"alibi(m=", "decay(sigma2=", "table[4](factor=[", "bank[2](rbf("};
  assert_string_equal(json_string_value(json_object_get(kernel, "expression")), "alibi|decay(l=3!)|table[4]|bank[2](rbf)");
  assert_int_equal(json_integer_value(json_object_get(kernel, "parameters")), 1 + 2 + 4 + 4);
  assert_int_equal(json_array_size(rows), 4);
  for (size_t i = 0; i < 4; i++) {
    const char *learned = json_string_value(json_object_get(json_array_get(rows, i), "expression"));
    if (strncmp(learned, begins[i], strlen(begins[i])) != 0) fail_msg("kernel %zu is %s", i, learned);
  }
  json_decref(object);
  hark(0, "info own");
  assert_non_null(strstr(output.out, "the kernels' values have moved by a factor of up to "));
  hark(0, "train --resume --steps 6 --out own");
  assert_int_equal(lines_with("own", "positional/layer1.head1/36.rbf.l/1", &value), 4);
  hark(0, "generate own --prompt the --max-new-tokens 4");
  hark(0, "plot --positional --terminal own");
  /* before the first evaluation, only the values at the start are known */
  char *metrics = test_file_text(folder, "own/metrics.jsonl");
  (void)test_file_write(folder, "own/metrics.jsonl", metrics, strcspn(metrics, "\n") + 1);
  free(metrics);
  hark(0, "info own");
  assert_null(strstr(output.out, "have moved"));
  hark(2, "train " TINY " --positional 'alibi|decay|t5' --positional-scope head --out other");
  assert_non_null(strstr(output.err, "model.positional has 3 expressions, expected 1 or 2, one of every head"));
}

static void kernels_are_drawn(void **state) {
  (void)state;
  hark(0, "train " TINY " " KERNEL " --positional-scope head --steps 2 --out run");
  hark(0, "plot --positional --terminal run");
  assert_non_null(strstr(output.out, "layer 0, head 0"));
  assert_non_null(strstr(output.out, "layer 1, head 1"));
  /* without gnuplot its data and script stay: a panel for each head, with three terms of each kernel */
  test_command_run(folder, "PATH=/nowhere", "plot --positional run --distances 8 -o kernels.svg", &output);
  assert_int_equal(output.code, 1);
  char *script = test_file_text(folder, "kernels.svg.gp"), *data = test_file_text(folder, "kernels.svg.dat");
  assert_non_null(strstr(script, "set multiplot layout 2,2"));
  assert_non_null(strstr(script, "set title 'positional kernel, layer 1, head 0'"));
  int curves = 0;
  for (const char *at = data; (at = strstr(at, "# ")) != NULL; at++) curves++;
  assert_int_equal(curves, 4 * (1 + 3));
  assert_non_null(strstr(script, "index 15 with"));
  free(script);
  free(data);
  hark(3, "plot --positional run --checkpoint step-9");
  hark(3, "plot --positional text.txt");
  hark(0, "train " TINY " --steps 2 --out plain");
  command_expect(folder, "plot --positional plain", 2, "", "has no positional kernel and no learned rotary rates", &output);
  hark(2, "plot --positional run --metric val/loss");
  hark(2, "plot run --metric val/loss --metric lr --metric val/loss");
  assert_non_null(strstr(output.err, "--metric: val/loss is given twice"));
  hark(2, "plot run --distances 9");
  hark(2, "plot --positional run plain");
}

/* Three metrics of one run have three colours; of two runs each run has one, and each metric has its dashes. */
static void metrics_have_colours_or_dashes(void **state) {
  (void)state;
  static const char *const colors[] = {"dt 1 lc rgb '#0072b2'", "dt 1 lc rgb '#d55e00'", "dt 1 lc rgb '#009e73'"};
  hark(0, "train " TINY " --steps 2 --log-every 1 --out colours");
  hark(0, "train " TINY " --steps 2 --log-every 1 --seed 2 --out others");
  test_command_run(folder, "PATH=/nowhere", "plot colours --metric train/loss --metric lr --metric grad_norm -o one.svg", &output);
  char *script = test_file_text(folder, "one.svg.gp");
  for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++)
    if (strstr(script, colors[i]) == NULL) fail_msg("no curve with %s in %s", colors[i], script);
  free(script);
  test_command_run(folder, "PATH=/nowhere", "plot colours others --metric train/loss --metric lr --metric grad_norm -o two.svg", &output);
  script = test_file_text(folder, "two.svg.gp");
  assert_non_null(strstr(script, "dt 3 lc rgb '#0072b2'"));
  assert_non_null(strstr(script, "dt 3 lc rgb '#d55e00'"));
  assert_null(strstr(script, "#009e73"));
  free(script);
}

/* Points of curve `index` of a data file: x0, y0, x1, y1, ...; returns how many points. */
static int curve_points(const char *name, int index, double *points, int limit) {
  char *const data = test_file_text(folder, name);
  const char *at = data;
  int count = 0;
  for (int i = 0; i <= index; i++) {
    at = strstr(at, "# ");
    if (at == NULL) fail_msg("%s has no curve %d", name, index);
    at = strchr(at, '\n') + 1;
  }
  while (count < limit && sscanf(at, "%lf %lf", &points[2 * count], &points[2 * count + 1]) == 2) {
    count++;
    at = strchr(at, '\n') + 1;
    if (*at == '\n' || *at == '#') break;
  }
  free(data);
  return count;
}

/* log decay(d / 2), l = 4, is -d / 8. */
static void kernels_are_drawn_stretched(void **state) {
  (void)state;
  hark(0, "train " TINY " --steps 1 --out run --positions none --positional 'decay(l=4)' --train.positional-rate 0 --positional-stretch 2");
  test_command_run(folder, "PATH=/nowhere", "plot --positional run --distances 8 -o kernels.svg", &output);
  assert_int_equal(output.code, 1);
  double points[32];
  assert_int_equal(curve_points("kernels.svg.dat", 0, points, 16), 9);
  for (int d = 0; d <= 8; d++) {
    assert_true(points[2 * d] == d);
    assert_true(fabs(points[2 * d + 1] + d / 8.0) < 1e-6); /* l and sigma2 are stored in f32 */
  }
}

/* A panel for each owner of rates: those that were learned, and those that training began with, 10000^(-2j/d). */
static void rates_are_drawn(void **state) {
  (void)state;
  static const struct {
    const char *scope, *title;
    int panels;
  } cases[] = {{"model", "model", 1}, {"layer", "layer 1", 2}, {"head", "layer 1, head 1", 4}};
  for (int i = 0; i < 3; i++) {
    char words[512], name[64], title[64];
    double learned[8], start[8], value = 0;
    (void)snprintf(words, sizeof words, "train " TINY " --rotary-learned %s --lr 1e-2 --warmup 0 --steps 2 --out run-%s", cases[i].scope,
                   cases[i].scope);
    hark(0, words);
    (void)snprintf(words, sizeof words, "plot --positional run-%s -o rates.svg", cases[i].scope);
    test_command_run(folder, "PATH=/nowhere", words, &output);
    assert_int_equal(output.code, 1);
    char *const script = test_file_text(folder, "rates.svg.gp");
    (void)snprintf(title, sizeof title, "set title 'rotary rates, %s'", cases[i].title);
    assert_non_null(strstr(script, title));
    assert_non_null(strstr(script, "set logscale y"));
    free(script);
    for (int panel = 0; panel < cases[i].panels; panel++) {
      assert_int_equal(curve_points("rates.svg.dat", 2 * panel, learned, 4), 2); /* heads of 4 features */
      assert_int_equal(curve_points("rates.svg.dat", 2 * panel + 1, start, 4), 2);
      assert_true(start[1] == 1 && fabs(start[3] - 0.01) < 1e-12);
      assert_true(learned[0] == 0 && learned[2] == 1 && learned[3] != start[3]);
    }
    static const char *const owners[] = {"model", "layer1", "layer1.head1"};
    (void)snprintf(name, sizeof name, "rotary/%s/1", owners[i]);
    (void)snprintf(words, sizeof words, "run-%s", cases[i].scope);
    assert_true(lines_with(words, name, &value) > 0);
    assert_true(fabs(value) == learned[3]); /* of the last panel */
  }
  hark(0, "plot --positional --terminal run-head");
  assert_non_null(strstr(output.out, "log10 of the angle per token"));
  assert_non_null(strstr(output.out, "layer 1, head 1"));
  /* kernels and rates together */
  hark(0, "train " TINY " --rotary-learned layer --positional 'decay+window(3)' --steps 1 --out both");
  hark(0, "plot --positional --terminal both");
  assert_non_null(strstr(output.out, "distance"));
  assert_non_null(strstr(output.out, "pair"));
  test_command_run(folder, "PATH=/nowhere", "plot --positional both -o both.svg", &output);
  char *const script = test_file_text(folder, "both.svg.gp");
  assert_non_null(strstr(script, "set multiplot layout 2,2"));
  assert_non_null(
      strstr(script, "unset logscale y\nset xlabel 'distance (tokens)'\nset ylabel 'log G'\nset title 'positional kernel, model'"));
  free(script);
}

#define POSITIONS "\"positions\": [{\"first\": 0, \"last\": 0, \"loss\": 3, \"targets\": 2}, {\"first\": 8, \"last\": 9, \"loss\": 2}]"

/* The colour of curve `index` in a script. */
static void color_of(const char *script, int index, char out[8]) {
  char mark[32];
  (void)snprintf(mark, sizeof mark, " index %d with ", index);
  const char *const at = strstr(script, mark), *const color = at != NULL ? strstr(at, "lc rgb '#") : NULL;
  if (color == NULL) fail_msg("no colour of curve %d in %s", index, script);
  (void)snprintf(out, 8, "%.7s", color + strlen("lc rgb '"));
}

/* A range that contains the data, and a margin of at most a tenth of it on both sides. */
static void expect_range(const char *script, const char *range, double low, double high) {
  double first, last;
  const char *const at = strstr(script, range);
  assert_non_null(at);
  assert_int_equal(sscanf(at + strlen(range), "%lf:%lf", &first, &last), 2);
  const double most = (high - low) / 10;
  if (!(first < low && first > low - most && last > high && last < high + most)) fail_msg("%g to %g for %g to %g", first, last, low, high);
}

#define LINE(step, metric, loss) "{\"step\": " step ", \"" metric "/loss\": " loss "}\n"

/* Both curves of a run have its colour, the training losses with dashes; the key is outside, the axis begins with the data. */
static void compared_runs_have_one_color_each(void **state) {
  (void)state;
  test_file_write_text(folder, "a.jsonl", LINE("10", "train", "3") LINE("20", "train", "2") LINE("20", "val", "2.5"));
  test_file_write_text(folder, "b.jsonl", LINE("10", "train", "4") LINE("20", "train", "3") LINE("20", "val", "3.5"));
  test_command_run(folder, "PATH=/nowhere", "plot a.jsonl b.jsonl -o both.svg", &output);
  assert_int_equal(output.code, 1);
  char *script = test_file_text(folder, "both.svg.gp");
  char colors[4][8];
  for (int i = 0; i < 4; i++) color_of(script, i, colors[i]);
  assert_string_equal(colors[0], colors[1]);
  assert_string_equal(colors[2], colors[3]);
  assert_string_not_equal(colors[0], colors[2]);
  assert_non_null(strstr(script, "lw 1.2 dt 2 lc rgb '#0072b2' title ''")); /* a's training losses have no entry in the key */
  assert_non_null(strstr(script, "lw 2 dt 1 lc rgb '#0072b2' title 'a.jsonl'"));
  assert_non_null(strstr(script, "dt 2 lc rgb 'black' title 'train/loss'"));
  assert_non_null(strstr(script, "set key below"));
  assert_non_null(strstr(script, "set autoscale xfix"));
  free(script);
  test_command_run(folder, "PATH=/nowhere", "plot a.jsonl -m train/loss -o one.svg", &output);
  script = test_file_text(folder, "one.svg.gp");
  assert_non_null(strstr(script, "dt 1 lc rgb '#0072b2' title 'train/loss'"));
  free(script);
}

/* The key has the part of the names that differs, the axis is called a loss only if it is one, and no curve is on the frame. */
static void keys_name_what_differs(void **state) {
  (void)state;
  (void)test_file_write_text(folder, "runs/some/a/metrics.jsonl", LINE("10", "val", "3") LINE("20", "val", "2"));
  (void)test_file_write_text(folder, "runs/some/ab/metrics.jsonl", LINE("10", "val", "4") "{\"step\": 20, \"lr\": 2.5}\n");
  test_command_run(folder, "PATH=/nowhere", "plot runs/some/a runs/some/ab -o differ.svg", &output);
  char *script = test_file_text(folder, "differ.svg.gp");
  assert_non_null(strstr(script, "title 'a'"));
  assert_non_null(strstr(script, "title 'ab'"));
  assert_null(strstr(script, "runs/some"));
  assert_non_null(strstr(script, "set ylabel 'loss (nats)'"));
  expect_range(script, "set yrange [", 2, 4);
  free(script);
  test_command_run(folder, "PATH=/nowhere", "plot runs/some/a runs/some/ab -m val/loss -m lr -o differ.svg", &output);
  script = test_file_text(folder, "differ.svg.gp");
  assert_non_null(strstr(script, "set ylabel ''"));
  free(script);
}

/* Of ten runs no two have the same colour and dashes. */
static void many_runs_are_distinguished(void **state) {
  enum { RUNS = 10 };
  (void)state;
  char words[512] = "plot", name[32];
  for (int i = 0; i < RUNS; i++) {
    (void)snprintf(name, sizeof name, "many%d.jsonl", i);
    test_file_write_text(folder, name, LINE("10", "val", "3") LINE("20", "val", "2"));
    strcat(strcat(words, " "), name);
  }
  strcat(words, " -m val/loss -o many.svg");
  test_command_run(folder, "PATH=/nowhere", words, &output);
  char *const script = test_file_text(folder, "many.svg.gp");
  assert_non_null(strstr(script, "index 7 with linespoints pt 7 ps 0.4 lw 2 dt 1 lc rgb '#6b6b6b'"));
  assert_non_null(strstr(script, "index 8 with linespoints pt 7 ps 0.4 lw 2 dt 2 lc rgb '#0072b2'"));
  assert_non_null(strstr(script, "index 9 with linespoints pt 7 ps 0.4 lw 2 dt 2 lc rgb '#d55e00'"));
  free(script);
}

/* Seeds of one run have one colour and one entry of the key. */
static void seeds_have_one_color(void **state) {
  (void)state;
  static const char *const names[] = {"a-seed=1", "a-seed=2", "b-seed=1", "a-seed=x"};
  char path[64];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", names[i]);
    (void)test_file_write_text(folder, path, LINE("10", "val", "3") LINE("20", "val", "2"));
  }
  test_command_run(folder, "PATH=/nowhere", "plot a-seed=1 b-seed=1 a-seed=2/ a-seed=x -m val/loss -o seeds.svg", &output);
  char *const script = test_file_text(folder, "seeds.svg.gp");
  assert_non_null(strstr(script, "index 0 with linespoints pt 7 ps 0.4 lw 2 dt 1 lc rgb '#0072b2' title 'a'"));
  assert_non_null(strstr(script, "index 1 with linespoints pt 7 ps 0.4 lw 2 dt 1 lc rgb '#d55e00' title 'b-seed=1'"));
  assert_non_null(strstr(script, "index 2 with linespoints pt 7 ps 0.4 lw 2 dt 1 lc rgb '#0072b2' title ''"));
  assert_non_null(strstr(script, "index 3 with linespoints pt 7 ps 0.4 lw 2 dt 1 lc rgb '#009e73' title 'a-seed=x'"));
  free(script);
}

static void pictures_are_for_every_screen(void **state) {
  (void)state;
  size_t bytes;
  if (system("command -v gnuplot >/dev/null 2>&1") != 0) skip();
  test_file_write_text(folder, "a.jsonl", LINE("10", "train", "3") LINE("20", "train", "2") LINE("20", "val", "2.5"));
  hark(0, "plot a.jsonl -o a.svg");
  char *const picture = test_file_text(folder, "a.svg");
  assert_non_null(strstr(picture, "font-family=\"Arial, sans-serif\""));
  assert_null(strstr(picture, "font-family=\"Arial\""));
  assert_non_null(strstr(picture, "<style>@media (prefers-color-scheme: dark)"));
  assert_non_null(strstr(picture, "</svg>"));
  free(picture);
  hark(0, "plot a.jsonl -o a.png");
  unsigned char *const png = test_file_read(test_path(folder, "a.png"), &bytes);
  assert_true(bytes > 24 && memcmp(png + 1, "PNG", 3) == 0);
  assert_int_equal((png[18] << 8) + png[19], 2000); /* two pixels for each of 1,000 */
  free(png);
}

/* gnuplot warns of an axis whose range is empty. */
static void axes_of_single_points_have_a_range(void **state) {
  (void)state;
  if (system("command -v gnuplot >/dev/null 2>&1") != 0) skip();
  test_file_write_text(folder, "plan.yaml",
                       "out: swept\nsettings: {data.paths: text.txt, train.steps: 1, model.layers: 1, model.width: 8, model.heads: 2, "
                       "model.context: 8, train.batch: 2, run.threads: 1}\n");
  hark(0, "train " TINY " " KERNEL " --steps 1 --out kernel");
  hark(0,
       "train --data text.txt --layers 1 --heads 4 --width 8 --context 8 --batch 2 --threads 1 --rotary-learned model --steps 1 --out "
       "rates");
  static const char *const pictures[] = {"plot --positional kernel --distances 1", "plot --positional rates", "sweep plan.yaml"};
  for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
    hark(0, pictures[i]);
    assert_non_null(strstr(output.out, ".svg"));
    if (strstr(output.err, "Warning") != NULL) fail_msg("hark %s: %s", pictures[i], output.err);
  }
}

/* A term far below the kernel does not set the scale: the range is that of the kernel and of what is near it. */
static void terms_without_effect_do_not_set_the_scale(void **state) {
  (void)state;
  hark(0, "train " TINY " --positions none --positional 'constant+decay(sigma2=1e-9,l=1)' --steps 1 --out run");
  test_command_run(folder, "PATH=/nowhere", "plot --positional run --distances 64 -o kernels.svg", &output);
  char *const script = test_file_text(folder, "kernels.svg.gp"), *const range = strstr(script, "set yrange [");
  double low = -1e9, high = 1e9;
  assert_non_null(range);
  assert_int_equal(sscanf(range, "set yrange [%lf:%lf]", &low, &high), 2);
  if (!(low > -8 && low < high && high < 8)) fail_msg("%g to %g", low, high);
  assert_non_null(strstr(script, "set logscale x 2\nset xrange [1:*]"));
  free(script);
}

/* Lines of --window-cut are a curve of their own, over window + 1; the uncut one is at the context, and a point over context too. */
static void windows_are_drawn(void **state) {
  (void)state;
#define WINDOW(window, loss, exchanged)                                                                                                    \
  "{\"run\": \"a\", \"checkpoint\": \"step-2\", \"context\": 32, \"stride\": 32, \"window\": " window ", \"loss\": " loss                  \
  ", \"targets\": 9, \"exchanged\": {" exchanged "}}\n"
#define EXCHANGED(window) "\"model.attention.structure\": \"window\", \"model.attention.window\": \"" window "\""
  test_file_write_text(folder, "w.jsonl", WINDOW("7", "2.5", EXCHANGED("7")) WINDOW("3", "3", EXCHANGED("3")) WINDOW("null", "2", ""));
  test_command_run(folder, "PATH=/nowhere", "plot --evaluation w.jsonl", &output);
  assert_int_equal(output.code, 1);
  char *const script = test_file_text(folder, "evaluation.svg.gp");
  assert_non_null(strstr(script, "set multiplot layout 1,2"));
  assert_non_null(strstr(script, "set xlabel 'tokens that attention reaches'"));
  assert_non_null(strstr(script, "index 0 with linespoints lw 2 pt 7 ps 0.4 dt 1 lc rgb '#0072b2' title 'a step-2'"));
  assert_non_null(strstr(script, "index 1 with linespoints lw 2 pt 7 ps 0.4 dt 1 lc rgb '#0072b2' title 'a step-2, context 32'"));
  assert_null(strstr(script, "index 2"));
  free(script);
  static const double expected[] = {4, 3, 8, 2.5, 32, 2};
  double points[8];
  assert_int_equal(curve_points("evaluation.svg.dat", 0, points, 4), 1);
  assert_int_equal(curve_points("evaluation.svg.dat", 1, points, 4), 3);
  for (int p = 0; p < 6; p++) assert_true(points[p] == expected[p]);
}

/* A curve for each model over context, with its points in order and the later of two lines; a curve for each of both over position. */
static void evaluations_are_drawn_together(void **state) {
  (void)state;
  test_file_write_text(
      folder, "a.jsonl",
      "{\"run\": \"a\", \"checkpoint\": \"step-2\", \"context\": 32, \"stride\": 32, \"loss\": 2.5, \"targets\": 9}\n"
      "{\"run\": \"a\", \"checkpoint\": \"step-2\", \"context\": 16, \"stride\": 16, \"loss\": 9, \"targets\": 9}\n"
      "{\"run\": \"a\", \"checkpoint\": \"step-2\", \"context\": 16, \"stride\": 16, \"loss\": 2, \"targets\": 9, " POSITIONS "}\n");
  test_file_write_text(folder, "b.jsonl",
                       "{\"run\": \"a\", \"checkpoint\": \"step-2\", \"context\": 16, \"stride\": 4, \"loss\": 1.5, \"targets\": 9, "
                       "\"exchanged\": {\"model.rotary.scaling\": \"yarn\"}}\n");
  test_command_run(folder, "PATH=/nowhere", "plot --evaluation a.jsonl b.jsonl", &output);
  assert_int_equal(output.code, 1);
  char *const script = test_file_text(folder, "evaluation.svg.gp");
  /* a model has one colour in both panels */
  assert_non_null(strstr(script, "index 0 with linespoints lw 2 pt 7 ps 0.4 dt 1 lc rgb '#0072b2' title 'a step-2'"));
  assert_non_null(
      strstr(script, "index 1 with linespoints lw 2 pt 7 ps 0.4 dt 1 lc rgb '#d55e00' title 'a step-2, scaling yarn, stride 4'"));
  assert_non_null(strstr(script, "index 2 with linespoints lw 2 pt 7 ps 0.4 dt 1 lc rgb '#0072b2' title ''"));
  assert_non_null(strstr(script, "NaN with lines lw 2 dt 1 lc rgb 'black' title 'context 16'"));
  assert_null(strstr(script, "index 3"));
  assert_non_null(strstr(script, "set multiplot layout 1,2"));
  free(script);
  static const double expected[3][4] = {{16, 2, 32, 2.5}, {16, 1.5}, {1, 3, 9.5, 2}};
  for (int i = 0; i < 3; i++) {
    double points[8];
    const int count = i == 1 ? 1 : 2;
    assert_int_equal(curve_points("evaluation.svg.dat", i, points, 4), count);
    for (int p = 0; p < 2 * count; p++) assert_true(points[p] == expected[i][p]);
  }
  test_command_run(folder, "PATH=/nowhere", "plot --evaluation a.jsonl b.jsonl --log", &output);
  char *const logarithmic = test_file_text(folder, "evaluation.svg.gp");
  assert_non_null(strstr(logarithmic, "\nset ytics (1.6, 1.8, 2, 2.2")); /* no power of ten is in between */
  expect_range(logarithmic, "set yrange [", 1.5, 2.5);
  free(logarithmic);
  hark(0, "plot --evaluation --terminal a.jsonl b.jsonl");
  assert_non_null(strstr(output.out, "context (tokens)"));
  assert_non_null(strstr(output.out, "b  a step-2, scaling yarn, stride 4"));
  assert_non_null(strstr(output.out, "a  a step-2, context 16"));
  assert_string_equal(output.err, "");
  if (system("command -v gnuplot >/dev/null 2>&1") == 0) {
    hark(0, "plot --evaluation a.jsonl b.jsonl --log -o drawn.svg");
    assert_non_null(strstr(output.out, "drawn.svg"));
    char *const picture = test_file_text(folder, "drawn.svg");
    assert_non_null(strstr(picture, "a step-2, scaling yarn, stride 4"));
    free(picture);
  }
}

/* The folders that all runs have in common are left out; of one run, all folders. */
static void keys_name_runs_without_common_folders(void **state) {
  (void)state;
#define OF_RUN(run) "{\"run\": \"" run "\", \"checkpoint\": \"best\", \"context\": 16, \"stride\": 16, \"loss\": 2, \"targets\": 9}\n"
  static const struct {
    const char *text, *labels[2];
  } cases[] = {{OF_RUN("/far/away/runs/a") OF_RUN("/far/away/runs/b/c"), {"a  a best", "b  b/c best"}},
               {OF_RUN("/far/away/runs/a/") OF_RUN("/far/away/runs/a/last"), {"a  a/ best", "b  a/last best"}},
               {OF_RUN("runs/a") OF_RUN("rust/a"), {"a  runs/a best", "b  rust/a best"}},
               {OF_RUN("/far/away/book") OF_RUN("/far/away/book"), {"a  book best", "a  book best"}},
               {OF_RUN("book"), {"a  book best", "a  book best"}}};
#undef OF_RUN
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    test_file_write_text(folder, "paths.jsonl", cases[i].text);
    hark(0, "plot --evaluation --terminal paths.jsonl");
    for (int j = 0; j < 2; j++)
      if (strstr(output.out, cases[i].labels[j]) == NULL) fail_msg("case %zu: %s", i, output.out);
  }
}

static void evaluations_that_do_not_fit_are_reported(void **state) {
  (void)state;
  hark(0, "train " TINY " --steps 2 --out run");
  hark(0, "eval run --context 16,8,32 --json");
  test_file_write_text(folder, "real.jsonl", output.out);
  const char *at = strstr(output.out, "\"targets\": ");
  assert_non_null(at);
  char warning[96];
  (void)snprintf(warning, sizeof warning, "warning: the compared evaluations have different numbers of targets, 30 to %d\n",
                 atoi(at + strlen("\"targets\": ")));
  hark(0, "plot --evaluation --terminal real.jsonl");
  assert_string_equal(output.err, "");
  assert_non_null(strstr(output.out, "run step-2, context 32"));
  hark(0, "eval run --context 8 --targets 30 --json");
  test_file_write_text(folder, "part.jsonl", output.out);
  hark(0, "plot --evaluation --terminal real.jsonl part.jsonl");
  assert_non_null(strstr(output.err, warning));
  static const char *const bad[] = {"{\"step\": 1, \"loss\": 2}\n", "{\"run\": \"a\", \"context\": 0, \"loss\": 2}\n",
                                    "{\"run\": \"a\", \"context\": 8}\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    test_file_write_text(folder, "bad.jsonl", bad[i]);
    hark(3, "plot --evaluation bad.jsonl");
    assert_non_null(strstr(output.err, "bad.jsonl:1: not a line of hark eval --json"));
  }
  static const struct {
    const char *line, *message;
  } refused[] = {
      {"{\"run\": \"a\", \"context\": 8, \"loss\": null}\n", "no loss that can be drawn"},
      {"{\"run\": \"a\", \"context\": 8, \"loss\": 2, \"positions\": [{\"first\": -1, \"last\": -1, \"loss\": 2}]}\n", "bucket 0"},
      {"{\"run\": \"a\", \"context\": 8, \"loss\": 2, \"positions\": [{\"first\": 4, \"last\": 8, \"loss\": 2}]}\n", "bucket 0"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    test_file_write_text(folder, "refused.jsonl", refused[i].line);
    command_expect(folder, "plot --evaluation refused.jsonl", 3, "", refused[i].message, &output);
  }
  /* names of strangers: one line of letters, and one block of points a curve */
  test_file_write_text(folder, "strange.jsonl", "{\"run\": \"a\\n9 9\\n\\n\\n\\u001b[31mX\", \"context\": 8, \"loss\": 2}\n");
  hark(0, "plot --evaluation --terminal strange.jsonl");
  assert_non_null(strstr(output.out, "a?9 9????[31mX"));
  assert_null(strchr(output.out, 27));
  FILE *many = fopen(test_path(folder, "many.jsonl"), "w");
  assert_non_null(many);
  for (int context = 8; context < 80; context++)
    fprintf(many, "{\"run\": \"a\", \"context\": %d, \"loss\": 2, \"positions\": [{\"first\": 0, \"last\": 3, \"loss\": 2}]}\n", context);
  assert_int_equal(fclose(many), 0);
  hark(0, "plot --evaluation --terminal many.jsonl");
  assert_non_null(strstr(output.err, "8 curves beyond the first 64 are left out"));
  test_file_write_text(folder, "empty.jsonl", "");
  hark(3, "plot --evaluation empty.jsonl");
  assert_non_null(strstr(output.err, "no evaluations"));
  hark(3, "plot --evaluation run");
  assert_non_null(strstr(output.err, "is a folder"));
  hark(3, "plot --evaluation none.jsonl");
  hark(2, "plot --evaluation --positional run");
  hark(2, "plot --evaluation real.jsonl --metric val/loss");
  assert_non_null(strstr(output.err, "--metric: has no effect here, it needs --evaluation off"));
  hark(2, "plot --evaluation real.jsonl --distances 4");
  hark(2, "plot --evaluation real.jsonl --log --terminal");
  assert_non_null(strstr(output.err, "--log: has no effect here, it needs --terminal off"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(kernels_stand_in_the_metrics),
                                     TEST(metrics_have_colours_or_dashes),
                                     TEST(kernels_of_heads_have_their_own_names),
                                     TEST(kernels_are_drawn),
                                     TEST(kernels_are_drawn_stretched),
                                     TEST(rates_are_drawn),
                                     TEST(compared_runs_have_one_color_each),
                                     TEST(seeds_have_one_color),
                                     TEST(keys_name_what_differs),
                                     TEST(many_runs_are_distinguished),
                                     TEST(pictures_are_for_every_screen),
                                     TEST(axes_of_single_points_have_a_range),
                                     TEST(terms_without_effect_do_not_set_the_scale),
                                     TEST(windows_are_drawn),
                                     TEST(evaluations_are_drawn_together),
                                     TEST(keys_name_runs_without_common_folders),
                                     TEST(evaluations_that_do_not_fit_are_reported)};
#undef TEST
  return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
