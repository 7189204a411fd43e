/* explain.h - what a state and its reason mean, what is missing, and what to do about it. */
#pragma once

enum { EXPLAIN_REMEDIES = 4 };

struct explanation {
    const char *state;                    /* NULL: the reason means the same in every state */
    const char *reason;                   /* "none": what the state itself means */
    const char *meaning;                  /* sentences */
    const char *missing;                  /* NULL: nothing */
    const char *remedy[EXPLAIN_REMEDIES]; /* NULL after the last */
};

/* Ends with a row without a meaning. */
extern const struct explanation explanations[];

/* The state by itself; NULL for a state of a later version. */
const struct explanation *explain_state(const char *state);

/* The reason within that state; NULL for "none" and for a reason of a later version. */
const struct explanation *explain_reason(const char *state, const char *reason);

/* Why a growth would not reach a volume's file system, or why that is not known: resizable_reason
 * in audit_volumes. NULL as above. */
const struct explanation *explain_resizable(const char *reason);
