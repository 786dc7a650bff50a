/* ahca_packing.c - see ahca_packing.h. */
#include "models/ahca_packing.h"

#include "support/cmocka_all.h"

void ahca_packing_open(hark_context *context, const hark_network *network, const int64_t *lengths, int64_t sequences, ahca_packing *out) {
  int32_t positions[AHCA_PACKED_TOKENS];
  int64_t total = 0, longest = 1;
  *out = (ahca_packing){.context = context, .network = network};
  for (int64_t s = 0; s < sequences; s++) {
    longest = lengths[s] > longest ? lengths[s] : longest;
    for (int64_t t = 0; t < lengths[s]; t++, total++) {
      assert_true(total < AHCA_PACKED_TOKENS);
      positions[total] = (int32_t)t;
      out->segments[total] = s;
    }
  }
  const hark_pass_sizes sizes = {.batch = 1, .queries = total, .keys = total, .sequences = sequences, .longest = longest};
  assert_int_equal(hark_tensor_create(context, HARK_I32, 1, &total, &out->positions), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &out->positions, positions), HARK_OK);
  if (hark_network_plans_create(context, network, &sizes, true, &out->training) != HARK_OK) fail_msg("%s", hark_context_message(context));
  assert_int_equal(hark_network_plans_create(context, network, &sizes, false, &out->evaluation), HARK_OK);
  out->packing = (hark_packing){.segments = out->segments, .positions = &out->positions, .longest = longest};
}

void ahca_packing_close(ahca_packing *p) {
  hark_network_plans_destroy(p->context, p->network, &p->training);
  hark_network_plans_destroy(p->context, p->network, &p->evaluation);
  hark_tensor_destroy(p->context, &p->positions);
}

void ahca_packing_give(const ahca_packing *p, hark_forward *forward) {
  forward->packing = &p->packing;
  forward->plans = forward->training ? p->training : p->evaluation;
}
