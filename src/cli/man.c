/* man.c - hark man: manual pages in roff, from the tables of subcommands and options. `hark man train | man -l -` shows one. */
#include <hark/version.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "io/files.h"
#include "io/temporary.h"

typedef struct man_values {
  const char *folder;
} man_values;

static const hark_option options[] = {
    {"folder", "folder", HARK_OPTION_STRING, offsetof(man_values, folder), "", NULL, NULL, "FOLDER",
     "write all pages, hark.1 and hark-SUBCOMMAND.1, into this folder", NULL},
};
static const hark_option_table table = {options, 1, NULL, sizeof(man_values), false};

/* ---- roff ---- */

/* Text between macros: backslashes and hyphens are escaped, and no line begins with a control character. */
static void escape(const char *text, hark_text *out) {
  for (const char *at = text; *at != 0; at++) {
    const bool line_begins = at == text || at[-1] == '\n';
    if (line_begins && (*at == '.' || *at == '\'')) hark_text_append(out, "\\&");
    switch (*at) {
      case '\\': hark_text_append(out, "\\e"); break;
      case '-': hark_text_append(out, "\\-"); break;
      default: hark_text_append_bytes(out, at, 1);
    }
  }
}

static void title(const char *subcommand, hark_text *out) {
  hark_text_append(out, ".\\\" Written by hark man from the table of options; do not edit.\n.TH HARK%s", subcommand[0] != 0 ? "\\-" : "");
  for (const char *at = subcommand; *at != 0; at++) hark_text_append(out, "%c", *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
  hark_text_append(out, " 1 \"\" \"hark %s\" \"hark\"\n", hark_version());
}

static void exit_codes(hark_text *out) {
#define ROW(name, number, text) {number, text},
  static const struct {
    int number;
    const char *text;
  } rows[] = {HARK_EXIT_CODES(ROW)};
#undef ROW
  hark_text_append(out, ".SH EXIT STATUS\n");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    hark_text_append(out, ".TP\n.B %d\n", rows[i].number);
    escape(rows[i].text, out);
    hark_text_append(out, "\n");
  }
}

static void see_also(const char *but, hark_text *out) {
  hark_text_append(out, ".SH SEE ALSO\n");
  if (but[0] != 0) hark_text_append(out, ".BR hark (1),\n");
  for (int i = 0; hark_commands[i] != NULL; i++) {
    if (strcmp(hark_commands[i]->name, but) != 0) hark_text_append(out, ".BR hark\\-%s (1),\n", hark_commands[i]->name);
  }
  hark_text_append(out, "docs/ in the source of hark\n");
}

/* ---- pages ---- */

static void print_option(const hark_option_view *view, hark_text *out) {
  char flag[HARK_OPTION_WORD_BYTES];
  hark_text meaning = hark_text_empty(out->context);
  hark_text_append(out, ".TP\n");
  for (int i = 0; hark_option_flag(view->option, i, flag); i++) {
    hark_text_append(out, "%s\\fB", i > 0 ? ", " : "");
    escape(flag, out);
    hark_text_append(out, "\\fR");
  }
  const char *const argument = hark_option_argument(view->option);
  if (argument[0] != 0) hark_text_append(out, " \\fI%s\\fR", argument);
  hark_text_append(out, "\n");
  hark_option_print_meaning(view, &meaning);
  if (meaning.status != HARK_OK && out->status == HARK_OK) out->status = meaning.status;
  escape(hark_text_get(&meaning), out);
  hark_text_append(out, "\n");
  hark_text_free(&meaning);
}

static hark_status print_page(hark_context *context, const hark_command *command, hark_text *out) {
  hark_invocation call;
  hark_status status = hark_call_begin(context, command, &call);
  title(command->name, out);
  hark_text_append(out, ".SH NAME\nhark\\-%s \\- ", command->name);
  escape(command->summary, out);
  hark_text_append(out, "\n.SH SYNOPSIS\n.B hark %s\n[\\fIoptions\\fR] \\fI", command->name);
  escape(command->arguments, out);
  hark_text_append(out, "\\fR\n.SH OPTIONS\n");
  const char *section = "Options";
  hark_option_view view;
  for (int i = 0; status == HARK_OK && i < hark_options_count(call.options); i++) {
    if (!hark_options_view(call.options, i, &view)) continue;
    if (strcmp(section, view.section) != 0) {
      hark_text_append(out, ".SS ");
      escape(view.section, out);
      hark_text_append(out, "\n");
    }
    section = view.section;
    print_option(&view, out);
  }
  if (command->has_configuration) {
    hark_text_append(
        out,
        ".PP\nA name in brackets is the key of the option in a configuration file; with \\fB\\-\\-\\fR in front of it, it is a flag too.\n"
        ".BR hark\\-config (1)\nprints such a file.\n");
  }
  if (command->notes != NULL) {
    hark_text_append(out, ".SH NOTES\n.nf\n");
    escape(command->notes, out);
    hark_text_append(out, ".fi\n");
  }
  exit_codes(out);
  see_also(command->name, out);
  hark_call_end(context, &call);
  return status;
}

static void print_overview(hark_text *out) {
  title("", out);
  hark_text_append(
      out,
      ".SH NAME\nhark \\- structured attention, and training of Transformers with it\n"
      ".SH SYNOPSIS\n.B hark\n\\fISUBCOMMAND\\fR [\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\nResults go to the standard output; messages, progress and errors to the standard error. An error is one "
      "line.\nThe locale changes nothing: numbers are written with a point.\n"
      ".SH SUBCOMMANDS\n");
  for (int i = 0; hark_commands[i] != NULL; i++) {
    hark_text_append(out, ".TP\n.BR hark\\-%s (1)\n", hark_commands[i]->name);
    escape(hark_commands[i]->summary, out);
    hark_text_append(out, "\n");
  }
  exit_codes(out);
  hark_text_append(
      out,
      ".SH ENVIRONMENT\n"
      ".TP\n.B HARK_ARCH\nthe instruction set to use, as hark version lists them: generic, avx2, avx512, neon\n"
      ".TP\n.B OMP_NUM_THREADS\nthe number of threads where \\-\\-threads does not give it; of a list, the first number. Without it, hark "
      "uses as many threads as the cores that it may run on (taskset, numactl, cpusets), the CPU quota of its control groups, rounded up, "
      "and\n"
      ".B SLURM_CPUS_PER_TASK\nallow. hark version reports the number and what it comes from\n"
      ".TP\n.B OMP_THREAD_LIMIT\nthe largest number of threads where \\-\\-threads does not give it\n"
      ".TP\n.B OMP_PLACES\nthe cores that threads may run on, among those that hark was started on. hark ignores OMP_PROC_BIND\n"
      ".TP\n.B NO_COLOR\nwhen set and not empty, nothing is coloured\n"
      ".TP\n.B TERM\nwhen \\(lqdumb\\(rq, nothing is coloured and no line is rewritten\n");
  see_also("", out);
}

/* Writes hark.1 or hark-NAME.1. */
static hark_status write_page(hark_context *context, const char *folder, const hark_command *command) {
  char name[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  hark_text page = hark_text_empty(context);
  hark_status status = HARK_OK;
  snprintf(name, sizeof name, "hark%s%s.1", command != NULL ? "-" : "", command != NULL ? command->name : "");
  if (command != NULL) {
    status = print_page(context, command, &page);
  } else {
    print_overview(&page);
  }
  if (status == HARK_OK) status = page.status;
  if (status == HARK_OK) status = hark_path_join(context, folder, name, path);
  if (status == HARK_OK) status = hark_path_clean(context, path);
  if (status == HARK_OK) status = hark_file_write(context, path, hark_text_get(&page), page.length);
  hark_text_free(&page);
  return status;
}

static hark_status check(hark_invocation *call) {
  const man_values *const values = call->values[0];
  if (values->folder[0] == 0 || hark_options_argument_count(call->options) == 0) return HARK_OK;
  return hark_options_complain(call->context, call->options, "folder", "writes all pages, expected no SUBCOMMAND");
}

static hark_status run(hark_invocation *call) {
  const man_values *const values = call->values[0];
  hark_context *const context = call->context;
  if (values->folder[0] != 0) {
    HARK_TRY(hark_folder_make(context, values->folder));
    HARK_TRY(write_page(context, values->folder, NULL));
    for (int i = 0; hark_commands[i] != NULL; i++) HARK_TRY(write_page(context, values->folder, hark_commands[i]));
    return HARK_OK;
  }
  hark_text page = hark_text_empty(context);
  if (hark_options_argument_count(call->options) == 0) {
    print_overview(&page);
  } else {
    const hark_status status = print_page(context, hark_command_find(hark_options_argument(call->options, 0)), &page);
    if (status != HARK_OK) hark_text_free(&page);
    HARK_TRY(status);
  }
  return hark_command_print(call, &page);
}

const hark_command hark_command_man = {
    .name = "man",
    .arguments = "[SUBCOMMAND]",
    .words = HARK_COMMAND_WORDS,
    .summary = "print a manual page, in roff",
    .notes =
        "  hark man train | man -l -          show the page of a subcommand\n"
        "  hark man --folder share/man/man1   write them all\n",
    .argument_minimum = 0,
    .argument_maximum = 1,
    .tables = {&table},
    .check = check,
    .run = run,
};
