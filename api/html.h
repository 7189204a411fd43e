/* SPDX-License-Identifier: Apache-2.0 */
/* html.h - HTML in which everything but crustd's own markup is escaped. Private to api/.
 *
 * Failures to append are latched in the buffer: lib/buffer.h.
 */
#pragma once

#include <stdint.h>

#include "lib/buffer.h"

/* Markup: only constants may be passed. */
void html_raw(struct buffer *html, const char *markup);

/* Text of any origin, between tags or in a quoted attribute. Invalid characters, and those that
 * control a terminal or reorder a line, are shown as U+FFFD. */
void html_text(struct buffer *html, const char *text);

void html_number(struct buffer *html, uint64_t number);

/* "64 MiB", with the bytes as its title; 0, which means unknown, as a dash. */
void html_size(struct buffer *html, uint64_t bytes);

/* <time>2026-01-02 03:04:05</time>, UTC. */
void html_time(struct buffer *html, int64_t realtime_ms);

/* "120 ms", "3.4 s", "5 min", "2 h", "3 d" */
void html_span(struct buffer *html, int64_t milliseconds);
