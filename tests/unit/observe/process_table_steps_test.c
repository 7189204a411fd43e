/* SPDX-License-Identifier: Apache-2.0 */
/* process_table_steps_test.c - a node with more processes than one call reads, whatever they cost:
 * these have no arguments and take no time. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/process.h"
#include "observe/process_table.h"

enum { MANY = 10000, MOST_AT_ONCE = 4096, CALLS_AT_MOST = 8 };

/* In place of lib/process_list.c. */
struct process_list {
    pid_t listed;
};

static unsigned read_in_call;

int process_list_new(struct process_list **ret_list)
{
    *ret_list = calloc(1, sizeof(**ret_list));
    return *ret_list ? 0 : -ENOMEM;
}

struct process_list *process_list_free(struct process_list *list)
{
    free(list);
    return NULL;
}

int process_list_next(struct process_list *list, pid_t *ret_pid)
{
    *ret_pid = list->listed < MANY ? ++list->listed : 0;
    return 0;
}

int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments)
{
    (void)list;
    (void)bytes;
    (void)ret_arguments;
    read_in_call++;
    return PROCESS_GONE;
}

static void a_call_reads_so_many_processes_and_the_next_goes_on(void **state)
{
    struct process_table *table;
    unsigned calls = 0, all = 0;
    int r;

    (void)state;
    assert_int_equal(process_table_new(&table), 0);
    do {
        read_in_call = 0;
        r = process_table_read_on(table);
        assert_true(read_in_call <= MOST_AT_ONCE);
        all += read_in_call;
    } while (r > 0 && ++calls < CALLS_AT_MOST);
    assert_int_equal(r, 0);
    assert_int_equal(all, MANY);
    process_table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_reads_so_many_processes_and_the_next_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
