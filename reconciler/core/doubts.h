/* SPDX-License-Identifier: Apache-2.0 */
/* doubts.h - sandboxes of which something on the node says what is not believed, and what that is:
 * for the log, once, and for the doctor while it lasts.
 */
#pragma once

struct doubts;

int doubts_new(struct doubts **ret_doubts);
struct doubts *doubts_free(struct doubts *doubts);

/* What there is to doubt of the sandbox now; NULL: nothing. Logs what was not said before. */
void doubts_note(struct doubts *doubts, const char *sandbox_id, const char *text);

/* The callback is told each of them. */
void doubts_each(const struct doubts *doubts,
                 void (*callback)(void *userdata, const char *sandbox_id, const char *text),
                 void *userdata);
