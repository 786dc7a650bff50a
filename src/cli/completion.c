/* completion.c - hark completion: completions of a shell for TAB, from the tables of subcommands and options.
 *
 * One generator per shell, all with the same data: the flags that --help lists, and for a value or an argument whether it is one of some
 * words, a folder, a file, or free.
 */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

#define SHELLS "bash|zsh|fish"

/* ---- the possible words ---- */

typedef enum value_kind { VALUE_NONE, VALUE_FREE, VALUE_WORDS, VALUE_FOLDER, VALUE_FILE } value_kind;

static value_kind kind_of_path(const char *argument) {
  if (strstr(argument, "FILE") != NULL || strstr(argument, "PATH") != NULL) return VALUE_FILE;
  return strstr(argument, "FOLDER") != NULL || strstr(argument, "RUN") != NULL ? VALUE_FOLDER : VALUE_FREE;
}

static value_kind kind_of_option(const hark_option *option) {
  if (option->type == HARK_OPTION_BOOL) return VALUE_NONE;
  return hark_option_has_choices(option) ? VALUE_WORDS : kind_of_path(hark_option_argument(option));
}

static value_kind kind_of_argument(const hark_command *command) {
  if (command->words != NULL) return VALUE_WORDS;
  return command->arguments[0] == 0 ? VALUE_NONE : kind_of_path(command->arguments);
}

/* The choices, separated by blanks. */
static void append_words(const char *choices, hark_text *out) {
  char word[HARK_OPTION_WORD_BYTES];
  for (int i = 0; hark_option_choice_at(choices, i, word); i++) hark_text_append(out, "%s%s", i > 0 ? " " : "", word);
}

/* Text with a backslash before each of `special`; a quote, in the single quotes of a Bourne shell, ends and begins them: '\''. */
static void append_escaped(const char *text, const char *special, bool bourne, hark_text *out) {
  for (const char *at = text; *at != 0; at++) {
    if (*at == '\'' && bourne) {
      hark_text_append(out, "'\\''");
      continue;
    }
    if (strchr(special, *at) != NULL) hark_text_append(out, "\\");
    hark_text_append_bytes(out, at, 1);
  }
}

/* A generator's output for one subcommand; `options` is its set. */
typedef void write_command(const hark_command *command, const hark_options *set, hark_text *out);

static hark_status each_command(hark_context *context, write_command *write, hark_text *out) {
  for (int i = 0; hark_commands[i] != NULL; i++) {
    hark_invocation call;
    const hark_status status = hark_call_begin(context, hark_commands[i], &call);
    if (status == HARK_OK) write(hark_commands[i], call.options, out);
    hark_call_end(context, &call);
    HARK_TRY(status);
  }
  return out->status;
}

/* ---- bash ---- */

static void bash_kind(value_kind kind, const char *choices, hark_text *out) {
  static const char *const names[] = {"none", "free", "words", "folder", "file"};
  hark_text_append(out, "kind=%s", names[kind]);
  if (kind != VALUE_WORDS) return;
  hark_text_append(out, " words='");
  append_words(choices, out);
  hark_text_append(out, "'");
}

static void bash_command(const hark_command *command, const hark_options *set, hark_text *out) {
  char flag[HARK_OPTION_WORD_BYTES];
  hark_option_view view;
  hark_text_append(out, "    %s)\n      flags='", command->name);
  for (int i = 0; i < hark_options_count(set); i++) {
    if (!hark_options_view(set, i, &view)) continue;
    for (int f = 0; hark_option_flag(view.option, f, flag); f++) hark_text_append(out, "%s ", flag);
  }
  hark_text_append(out, "'\n      ");
  bash_kind(kind_of_argument(command), command->words, out);
  hark_text_append(out, "\n      case $previous in\n");
  for (int i = 0; i < hark_options_count(set); i++) {
    if (!hark_options_view(set, i, &view) || kind_of_option(view.option) == VALUE_NONE) continue;
    hark_text_append(out, "        ");
    for (int f = 0; hark_option_flag(view.option, f, flag); f++) hark_text_append(out, "%s%s", f > 0 ? "|" : "", flag);
    hark_text_append(out, ") flags= ");
    bash_kind(kind_of_option(view.option), view.option->range, out);
    hark_text_append(out, " ;;\n");
  }
  hark_text_append(out, "      esac\n      ;;\n");
}

static hark_status print_bash(hark_context *context, hark_text *out) {
  hark_text_append(out,
                   "# Completion of hark for bash, written by hark completion bash; do not edit.\n"
                   "_hark() {\n"
                   "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} flags= kind=none words=\n"
                   "  COMPREPLY=()\n"
                   "  # --flag=value comes as three words\n"
                   "  if [[ $current == = ]]; then\n"
                   "    current=\n"
                   "  elif [[ $previous == = ]]; then\n"
                   "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
                   "  fi\n"
                   "  if ((COMP_CWORD == 1)); then\n"
                   "    mapfile -t COMPREPLY < <(compgen -W '");
  append_words(HARK_COMMAND_WORDS, out);
  hark_text_append(out,
                   " help --help --version' -- \"$current\")\n"
                   "    return\n"
                   "  fi\n"
                   "  case ${COMP_WORDS[1]} in\n"
                   "    help) kind=words words='");
  append_words(HARK_COMMAND_WORDS, out);
  hark_text_append(out, "' ;;\n");
  HARK_TRY(each_command(context, bash_command, out));
  hark_text_append(out,
                   "  esac\n"
                   "  if [[ -n $flags && $current == -* ]]; then\n"
                   "    mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n"
                   "    return\n"
                   "  fi\n"
                   "  case $kind in\n"
                   "    words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\") ;;\n"
                   "    folder)\n"
                   "      compopt -o filenames 2>/dev/null\n"
                   "      mapfile -t COMPREPLY < <(compgen -d -- \"$current\")\n"
                   "      ;;\n"
                   "    file)\n"
                   "      compopt -o filenames 2>/dev/null\n"
                   "      mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                   "      ;;\n"
                   "  esac\n"
                   "}\n"
                   "complete -F _hark hark\n");
  return out->status;
}

/* ---- zsh ---- */

#define ZSH_SPECIAL "[]:\\" /* in the parts of an _arguments specification */

/* ":FOLDER:_files -/" after an option or a place. */
static void zsh_action(const char *argument, value_kind kind, const char *choices, hark_text *out) {
  hark_text_append(out, ":");
  append_escaped(argument, ZSH_SPECIAL, true, out);
  hark_text_append(out, ":");
  switch (kind) {
    case VALUE_NONE:
    case VALUE_FREE: hark_text_append(out, " "); break;
    case VALUE_FOLDER: hark_text_append(out, "_files -/"); break;
    case VALUE_FILE: hark_text_append(out, "_files"); break;
    case VALUE_WORDS:
      hark_text_append(out, "(");
      append_words(choices, out);
      hark_text_append(out, ")");
      break;
  }
}

static void zsh_command(const hark_command *command, const hark_options *set, hark_text *out) {
  char flag[HARK_OPTION_WORD_BYTES];
  hark_option_view view;
  hark_text_append(out, "        %s)\n          _arguments -S \\\n", command->name);
  for (int i = 0; i < hark_options_count(set); i++) {
    if (!hark_options_view(set, i, &view)) continue;
    const value_kind kind = kind_of_option(view.option);
    for (int f = 0; hark_option_flag(view.option, f, flag); f++) {
      hark_text_append(out, "            '%s%s%s[", view.option->type == HARK_OPTION_LIST ? "*" : "", flag,
                       kind != VALUE_NONE && flag[1] == '-' ? "=" : "");
      append_escaped(view.option->help, ZSH_SPECIAL, true, out);
      hark_text_append(out, "]");
      if (kind != VALUE_NONE) zsh_action(hark_option_argument(view.option), kind, view.option->range, out);
      hark_text_append(out, "' \\\n");
    }
  }
  const value_kind kind = kind_of_argument(command);
  if (kind == VALUE_WORDS) {
    hark_text_append(out, "            '1");
    zsh_action(command->arguments, kind, command->words, out);
    hark_text_append(out, "'\n");
  } else if (kind != VALUE_NONE) {
    hark_text_append(out, "            '*");
    zsh_action(command->arguments, kind, NULL, out);
    hark_text_append(out, "'\n");
  } else {
    hark_text_append(out, "            ':: :'\n");
  }
  hark_text_append(out, "          ;;\n");
}

static hark_status print_zsh(hark_context *context, hark_text *out) {
  hark_text_append(out,
                   "#compdef hark\n"
                   "# Completion of hark for zsh, written by hark completion zsh; do not edit.\n"
                   "_hark() {\n"
                   "  local curcontext=$curcontext state line\n"
                   "  typeset -A opt_args\n"
                   "  _arguments -C '(- *)--help[print help]' '(- *)--version[print the version]' '1:subcommand:->subcommand' "
                   "'*::argument:->arguments'\n"
                   "  case $state in\n"
                   "    subcommand)\n"
                   "      local -a subcommands\n"
                   "      subcommands=(\n");
  for (int i = 0; hark_commands[i] != NULL; i++) {
    hark_text_append(out, "        '%s:", hark_commands[i]->name);
    append_escaped(hark_commands[i]->summary, ":\\", true, out);
    hark_text_append(out, "'\n");
  }
  hark_text_append(out,
                   "      )\n"
                   "      _describe -t subcommands subcommand subcommands\n"
                   "      ;;\n"
                   "    arguments)\n"
                   "      case $words[1] in\n");
  HARK_TRY(each_command(context, zsh_command, out));
  hark_text_append(out,
                   "      esac\n"
                   "      ;;\n"
                   "  esac\n"
                   "}\n"
                   "_hark \"$@\"\n");
  return out->status;
}

/* ---- fish ---- */

#define FISH_SPECIAL "'\\" /* in single quotes */

static void fish_value(value_kind kind, const char *choices, hark_text *out) {
  switch (kind) {
    case VALUE_NONE: break;
    case VALUE_FREE: hark_text_append(out, " -x"); break;
    case VALUE_FOLDER: hark_text_append(out, " -x -a '(__fish_complete_directories (commandline -ct))'"); break;
    case VALUE_FILE: hark_text_append(out, " -r -F"); break;
    case VALUE_WORDS:
      hark_text_append(out, " -x -a '");
      append_words(choices, out);
      hark_text_append(out, "'");
      break;
  }
}

static void fish_command(const hark_command *command, const hark_options *set, hark_text *out) {
  char flag[HARK_OPTION_WORD_BYTES];
  hark_option_view view;
  hark_text_append(out, "complete -c hark -n __hark_first -a %s -d '", command->name);
  append_escaped(command->summary, FISH_SPECIAL, false, out);
  hark_text_append(out, "'\n");
  for (int i = 0; i < hark_options_count(set); i++) {
    if (!hark_options_view(set, i, &view)) continue;
    for (int f = 0; hark_option_flag(view.option, f, flag); f++) {
      const bool is_long = flag[1] == '-';
      hark_text_append(out, "complete -c hark -n '__hark_runs %s' -%c %s", command->name, is_long ? 'l' : 's', flag + (is_long ? 2 : 1));
      fish_value(kind_of_option(view.option), view.option->range, out);
      hark_text_append(out, " -d '");
      append_escaped(view.option->help, FISH_SPECIAL, false, out);
      hark_text_append(out, "'\n");
    }
  }
  switch (kind_of_argument(command)) {
    case VALUE_NONE:
    case VALUE_FREE: break;
    case VALUE_FILE: hark_text_append(out, "complete -c hark -n '__hark_runs %s' -F\n", command->name); break;
    case VALUE_FOLDER:
      hark_text_append(out, "complete -c hark -n '__hark_runs %s' -a '(__fish_complete_directories (commandline -ct))'\n", command->name);
      break;
    case VALUE_WORDS:
      hark_text_append(out, "complete -c hark -n '__hark_runs %s' -a '", command->name);
      append_words(command->words, out);
      hark_text_append(out, "'\n");
      break;
  }
}

static hark_status print_fish(hark_context *context, hark_text *out) {
  hark_text_append(out,
                   "# Completion of hark for fish, written by hark completion fish; do not edit.\n"
                   "function __hark_first\n"
                   "  test (count (commandline -opc)) -eq 1\n"
                   "end\n"
                   "function __hark_runs\n"
                   "  set -l words (commandline -opc)\n"
                   "  test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
                   "end\n"
                   "complete -c hark -f\n");
  return each_command(context, fish_command, out);
}

/* ---- the subcommand ---- */

static hark_status run(hark_invocation *call) {
  static hark_status (*const shells[])(hark_context * context, hark_text * out) = {print_bash, print_zsh, print_fish}; /* as in SHELLS */
  hark_text text = hark_text_empty(call->context);
  const hark_status status = shells[hark_option_choice(SHELLS, hark_options_argument(call->options, 0))](call->context, &text);
  if (status != HARK_OK) hark_text_free(&text);
  HARK_TRY(status);
  return hark_command_print(call, &text);
}

const hark_command hark_command_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .words = SHELLS,
    .summary = "print a script that lets a shell complete hark's subcommands, options and their words",
    .notes =
        "  hark completion bash > ~/.local/share/bash-completion/completions/hark\n"
        "  hark completion zsh > ~/.zfunc/_hark       (a folder of fpath, before compinit)\n"
        "  hark completion fish > ~/.config/fish/completions/hark.fish\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .run = run,
};
