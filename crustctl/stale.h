/* stale.h - what the reasons in audit_cleanups mean, and what to do about them. */
#pragma once

#include "lib/buffer.h"

struct stale_text {
    const char *reason;
    const char *meaning; /* of "it", the metadata */
    const char *remedy;  /* NULL: nothing is to be done */
};

/* Ends with a row without a reason. */
extern const struct stale_text stale_texts[];

/* NULL for a reason of a later version. */
const struct stale_text *stale_find(const char *reason);

/* "reason: meaning remedy", wrapped. */
int stale_print(const struct stale_text *text, unsigned width, struct buffer *out);
