/* SPDX-License-Identifier: Apache-2.0 */
/* fake_child.h - a program that ends when the test says so; in place of lib/child.c. */
#pragma once

#include "tests/unit/test.h"

#include <stdio.h>
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
static struct child_request fake_child_request;
static char fake_child_arguments[512];     /* each followed by a space */
static void (*fake_child_is_to_run)(void); /* NULL: nobody looks at what is so then */

int child_new(struct loop *loop, const struct child_request *request, child_done *done,
              void *userdata, struct child **ret_child)
{
    (void)loop;
    fake_child_request = *request;
    fake_child_arguments[0] = '\0';
    for (const char *const *argument = request->arguments; *argument; argument++) {
        size_t length = strlen(fake_child_arguments);

        (void)snprintf(fake_child_arguments + length, sizeof(fake_child_arguments) - length, "%s ",
                       *argument);
    }
    if (fake_child_is_to_run)
        fake_child_is_to_run();
    if (fake_child_refused)
        return fake_child_refused;
    *ret_child = fake_child = calloc(1, sizeof(**ret_child));
    assert_non_null(fake_child);
    *fake_child = (struct child){done, userdata};
    return 0;
}

const char *child_explain(int failure)
{
    return strerror(-failure);
}

struct child *child_free(struct child *child)
{
    if (child)
        fake_child = NULL;
    free(child);
    return NULL;
}

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
