/* SPDX-License-Identifier: Apache-2.0 */
/* explanation.h - what a published word means, what is missing, and what to do. */
#pragma once

enum { EXPLANATION_REMEDIES = 4 };

struct explanation {
    const char *meaning;                      /* sentences */
    const char *missing;                      /* NULL: nothing */
    const char *remedy[EXPLANATION_REMEDIES]; /* NULL after the last */
};
