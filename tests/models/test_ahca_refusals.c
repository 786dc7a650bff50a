/* test_ahca_refusals.c - configurations of compressed attention that cannot be, each refused by its name. */
#include <hark/hark.h>
#include <string.h>

#include "models/ahca_model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

static void refused(void (*change)(hark_network_config *), const char *word) {
  hark_context *context = test_reference_open();
  hark_network_config config = ahca_variants[0].config;
  hark_network *network = NULL;
  change(&config);
  assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &network), HARK_BAD_CONFIGURATION);
  if (strstr(hark_context_message(context), word) == NULL) fail_msg("'%s' without '%s'", hark_context_message(context), word);
  assert_null(network);
  test_setup_close(context);
}

static void no_chunk(hark_network_config *config) { config->ahca.chunk_size = 0; }
static void crossed(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_CHUNK_SEMANTIC;
  config->ahca.chunk_minimum = 9;
}
static void more_selected(hark_network_config *config) { config->ahca.selected = 6; }
static void wide_capacity(hark_network_config *config) { config->ahca.capacity = 1.5; }
static void few_capacities(hark_network_config *config) {
  config->ahca.layer_capacities[0] = 0.5;
  config->ahca.capacity_count = 1;
}
static void growing_capacities(hark_network_config *config) {
  config->ahca.layer_capacities[0] = 0.25;
  config->ahca.layer_capacities[1] = 0.5;
  config->ahca.capacity_count = 2;
}
static void large_capacities(hark_network_config *config) {
  config->ahca.layer_capacities[0] = 1.5;
  config->ahca.capacity_count = 2;
}
static void deep(hark_network_config *config) { config->layers = 65; }
static void odd_width(hark_network_config *config) { config->ahca.primary_width = 7; }
static void rotary(hark_network_config *config) { config->positions = HARK_POSITIONS_ROTARY; }
static void pairs(hark_network_config *config) { config->parts = 2; }
static void no_slots(hark_network_config *config) { config->ahca.primary_slots = 0; }
static void unequal(hark_network_config *config) {
  config->ahca.select = HARK_AHCA_SELECT_QUERY;
  config->ahca.secondary_width = 4;
}
static void recomputed(hark_network_config *config) { config->recompute = true; }
static void windowed(hark_network_config *config) {
  config->attention.structure = (hark_layer_choice)HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW);
  config->ahca.output = HARK_AHCA_OUTPUT_SELECTED;
}
static void kernel_of_selected(hark_network_config *config) {
  config->positional = "decay";
  config->ahca.output = HARK_AHCA_OUTPUT_SELECTED;
}
static void kernel_of_queries(hark_network_config *config) {
  config->positional = "decay";
  config->ahca.secondary_pool = HARK_AHCA_POOL_ATTENTION;
}
static void kernel_of_layers(hark_network_config *config) {
  config->positional = "decay";
  config->positional_scope = HARK_SCOPE_LAYER;
}
static void other_kernel(hark_network_config *config) { config->attention.kernel = HARK_KERNEL_RBF; }

static void beyond(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_CHUNK_DELIMITER;
  config->ahca.delimiter = VOCABULARY;
}
static void also_beyond(hark_network_config *config) {
  config->ahca.chunk = HARK_AHCA_CHUNK_DELIMITER;
  config->ahca.other_delimiters[0] = VOCABULARY;
  config->ahca.other_delimiter_count = 1;
}
static void tokens_of_selected(hark_network_config *config) {
  config->classes = 0;
  config->ahca.head = HARK_AHCA_HEAD_LABELS;
  config->ahca.output = HARK_AHCA_OUTPUT_SELECTED;
}
static void labels_of_classes(hark_network_config *config) { config->ahca.head = HARK_AHCA_HEAD_LABELS; }
static void without_positions(hark_network_config *config) {
  config->classes = 0;
  config->ahca.head = HARK_AHCA_HEAD_RECONSTRUCTION;
  config->positions = HARK_POSITIONS_NONE;
}
static void outputs_of_none(hark_network_config *config) {
  config->ahca.selected = 0;
  config->ahca.output = HARK_AHCA_OUTPUT_SELECTED;
}
static void depth_of_none(hark_network_config *config) {
  config->ahca.selected = 0;
  config->ahca.depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION;
}
static void odd_local(hark_network_config *config) { config->ahca.local_layers = 1; }
static void negative_local(hark_network_config *config) { config->ahca.local_layers = -1; }
static void negative_window(hark_network_config *config) { config->ahca.local_window = -1; }
static void too_deep(hark_network_config *config) { config->ahca.primary_depth = 3; }

static void what_cannot_be_is_refused_by_name(void **state) {
  (void)state;
  refused(no_chunk, "model.ahca.chunk_size");
  refused(crossed, "model.ahca.chunk_minimum");
  refused(more_selected, "model.ahca.selected");
  refused(wide_capacity, "model.ahca.capacity");
  refused(few_capacities, "model.ahca.capacities has 1 numbers, expected one for each layer but the first, 2");
  refused(growing_capacities, "model.ahca.capacities has 0.5 for layer 3, expected 0 to 0.25");
  refused(large_capacities, "model.ahca.capacities has 1.5 for layer 2, expected 0 to 1");
  refused(deep, "model.layers");
  refused(odd_width, "model.ahca.primary_width");
  refused(rotary, "rotary positions");
  refused(pairs, "one sequence");
  refused(no_slots, "model.ahca.primary_slots");
  refused(unequal, "model.ahca.select");
  refused(recomputed, "model.recompute");
  refused(windowed, "model.attention.structure");
  refused(kernel_of_selected, "model.positional");
  refused(kernel_of_queries, "model.ahca.secondary_pool");
  refused(kernel_of_layers, "model.positional_scope");
  refused(other_kernel, "model.attention.kernel");
  refused(beyond, "model.ahca.delimiter is 9, expected a token, 0 to 8");
  refused(also_beyond, "model.ahca.more_delimiters is 9, expected a token, 0 to 8");
  refused(tokens_of_selected, "model.ahca.output selected");
  refused(labels_of_classes, "model.ahca.head labels predicts tokens");
  refused(without_positions, "model.positions learned");
  refused(outputs_of_none, "model.ahca.selected is 0, expected at least 1 with model.ahca.output selected");
  refused(depth_of_none, "model.ahca.selected is 0, expected at least 1 with model.ahca.depth_score attention");
  refused(odd_local, "model.width / model.heads is 3; local layers have rotary positions");
  refused(negative_local, "model.ahca.local_layers is -1");
  refused(negative_window, "model.ahca.local_window is -1");
  refused(too_deep, "model.ahca.primary_depth");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_cannot_be_is_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
