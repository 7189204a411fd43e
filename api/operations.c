/* SPDX-License-Identifier: Apache-2.0 */
/* operations.c - a linked list, because there are few. A call is not counted if there is no memory
 * for its entry. */
#include "api/operations.h"

#include <stdlib.h>

#include "lib/clock.h"

static struct operation *find(struct operations *operations, const char *method,
                              enum status_code code)
{
    struct operation *one = operations->first;

    while (one && (one->method != method || one->code != code))
        one = one->next;
    if (one)
        return one;
    one = calloc(1, sizeof(*one));
    if (!one)
        return NULL;
    one->next = operations->first;
    one->method = method;
    one->code = code;
    operations->first = one;
    return one;
}

void operations_note(struct operations *operations, const char *method, enum status_code code,
                     uint64_t began_ns)
{
    struct operation *one = find(operations, method, code);

    if (one)
        histogram_add(&one->spans, (double)(clock_boottime() - began_ns) / (double)NSEC_PER_SEC);
}

void operations_done(struct operations *operations)
{
    while (operations->first) {
        struct operation *one = operations->first;

        operations->first = one->next;
        free(one);
    }
}
