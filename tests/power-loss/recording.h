/* SPDX-License-Identifier: Apache-2.0 */
/* recording.h - stands between the program and libc, and records what goes to the files of one
 * directory. One recording at a time. */
#pragma once

#include "tests/power-loss/content.h"

/* The files of `directory` as they are now come first. 0 or -errno. */
int recording_start(const char *directory);
void recording_stop(void);
bool recording_is_on(void);
void recording_forget(void);

size_t recording_count(void);
const struct operation *recording_at(size_t index);

/* What the directory had at the start: files are numbered from 0, and the others came later. */
unsigned recording_files(void);
const struct content *recording_first_content(unsigned file);
const struct names *recording_first_names(void);
