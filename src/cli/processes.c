/* processes.c - see processes.h. */
#include "cli/processes.h"

#include <hark/version.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "group/group.h"

/* Other instruction sets, and other builds, have other bits. */
static hark_status compare_machines(hark_invocation *call) {
#ifdef HARK_WITH_ONEDNN
  static const char products[] = ", oneDNN";
#else
  static const char products[] = "";
#endif
  char own[64] = "", first[64];
  (void)snprintf(own, sizeof own, "hark %s, %s%s", hark_version(), hark_context_instruction_set(call->context), products);
  memcpy(first, own, sizeof first);
  HARK_TRY(hark_group_broadcast(call->context, call->group, first, sizeof first));
  if (strcmp(own, first) == 0) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION,
                   "%s computes other bits than rank 0 with %s; HARK_ARCH selects an instruction set", own, first);
}

/* Frees the text of the options. */
static hark_status compare(hark_invocation *call, hark_text *text) {
  const uint64_t own = hark_checksum_bytes(HARK_CHECKSUM_START, hark_text_get(text), text->length);
  const hark_status status = text->status;
  hark_text_free(text);
  HARK_TRY(hark_group_compare(call->context, call->group, status, own, "options"));
  return hark_group_agree(call->context, call->group, compare_machines(call));
}

hark_status hark_command_compare(hark_invocation *call) {
  hark_text text = hark_text_empty(call->context);
  if (call->group == NULL) return HARK_OK;
  for (int i = 0; i < hark_options_argument_count(call->options); i++)
    hark_text_append(&text, "%s\n", hark_options_argument(call->options, i));
  for (int t = 0; t < HARK_COMMAND_TABLES && call->command->tables[t] != NULL; t++)
    for (int i = 0; i < call->command->tables[t]->count; i++) {
      hark_options_print_value(call->options, call->command->tables[t]->options[i].name, &text);
      hark_text_append(&text, "\n");
    }
  return compare(call, &text);
}

/* All processes must have the same configuration; their threads may differ. */
static hark_status compare_configuration(hark_invocation *call, hark_config *config) {
  const int64_t threads = config->run.threads;
  hark_text text = hark_text_empty(call->context);
  config->run.threads = 0;
  hark_options_print_yaml(call->options, false, &text);
  config->run.threads = threads;
  return compare(call, &text);
}

hark_status hark_command_join(hark_invocation *call, hark_config *config) {
  call->context->group = call->group;
  hark_group_set_limit(call->group, config->run.rank_timeout);
  return call->group != NULL ? compare_configuration(call, config) : HARK_OK;
}
