/* SPDX-License-Identifier: Apache-2.0 */
/* fake_call.h - a call that a test answers, in place of one of the product. */
#pragma once

#include "tests/unit/test.h"

#include <stdlib.h>

static inline void *fake_call_make(size_t size)
{
    void *call = calloc(1, size);

    assert_non_null(call);
    return call;
}

/* Defines the function of the product that frees such a call, which is no longer in `place` then.
 */
#define FAKE_CALL_FREE(type, function, place)                                                      \
    struct type *function(struct type *call)                                                       \
    {                                                                                              \
        if (call == (place))                                                                       \
            (place) = NULL;                                                                        \
        free(call);                                                                                \
        return NULL;                                                                               \
    }
