/* ahca_text.h - decisions of models of compressed chunks, for people and as JSON: eval and info. */
#ifndef HARK_CLI_AHCA_TEXT_H
#define HARK_CLI_AHCA_TEXT_H

#include "io/text.h"
#include "train/ahca_statistics.h"

/* Appends nothing if there are no statistics; else lines for people, or with `json` a member of an object: `, "ahca": {...}`. */
void hark_ahca_text_append(const hark_ahca_report *report, bool json, hark_text *text);
/* `, "decisions": [...]` if the statistics have a list of sequences. */
void hark_ahca_decisions_append(const hark_ahca_statistics *statistics, hark_text *text);

#endif
