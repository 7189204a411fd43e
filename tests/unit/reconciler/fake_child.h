/* SPDX-License-Identifier: Apache-2.0 */
/* fake_child.h - a program that ends when the test says so; in place of lib/child.c. */
#pragma once

#include "tests/unit/reconciler/fake_call.h"

#include <stdlib.h>
#include <string.h>

#include "lib/child.h"
#include "lib/cleanup.h"

struct child {
    child_done *done;
    void *userdata;
};

static struct child *fake_child; /* the last that was run and has not been freed */
static int fake_child_refused;   /* -errno: nothing can be run */

int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child)
{
    if (fake_child_refused)
        return fake_child_refused;
    *ret_child = fake_child = fake_call_make(sizeof(**ret_child));
    *fake_child = (struct child){done, userdata};
    return 0;
}

const char *child_explain(int failure)
{
    return strerror(-failure);
}

FAKE_CALL_FREE(child, child_free, fake_child)

static inline void child_ends(enum child_end end, int status, const char *text)
{
    cleanup(buffer_done) struct buffer output = BUFFER_INIT(0);

    assert_non_null(fake_child);
    assert_int_equal(buffer_append_text(&output, text), 0);
    fake_child->done(fake_child, end, status, &output, fake_child->userdata);
    assert_null(fake_child);
}

static inline void child_says(const char *text)
{
    child_ends(CHILD_EXITED, 0, text);
}
