/* SPDX-License-Identifier: Apache-2.0 */
/* doubts.h - sandboxes for which something on the node makes a claim that crustd does not believe,
 * with the claim: logged once, and shown to the doctor while it lasts. */
#pragma once

struct doubts;

int doubts_new(struct doubts **ret_doubts);
struct doubts *doubts_free(struct doubts *doubts);

/* Sets the present doubt about the sandbox; NULL: none. Logs it if it is new. */
void doubts_note(struct doubts *doubts, const char *sandbox_id, const char *text);

/* Calls back for each of them. */
void doubts_each(const struct doubts *doubts,
                 void (*callback)(void *userdata, const char *sandbox_id, const char *text),
                 void *userdata);
