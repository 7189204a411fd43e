/* SPDX-License-Identifier: Apache-2.0 */
/* attachment_test.c - the attachment table of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/attachment.h"

enum { LIST, RECORD, CONTAINER, LASTING, FACTS };

static const struct table_fact facts[FACTS] = {
    [LIST] = {"list", {"unread", "refused", "has", "lacks"}},
    [RECORD] = {"record", {"silent", "device", "directory"}},
    [CONTAINER] = {"container", {"yes", "no"}},
    [LASTING] = {"lasting", {"yes", "no"}},
};

static struct table table = {
    .marker = "<!-- attachment -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 1,
};

static int read_table(void **state)
{
    (void)state;
    table_read(&table);
    return 0;
}

static struct attachment_facts facts_of(const int *combination)
{
    return (struct attachment_facts){
        .list = combination[LIST],
        .record = combination[RECORD],
        .has_container = combination[CONTAINER] == 0,
        .is_lasting = combination[LASTING] == 0,
    };
}

static void every_combination_is_decided_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct attachment_facts given = facts_of(combination);
        const char *decided = attachment_name(attachment_decide(&given));
        const struct table_row *row = table_match(&table, combination);

        if (strcmp(decided, row->outcome[0]) == 0)
            continue;
        table_print(&table, combination);
        fail_msg("row %u says %s, the code %s", (unsigned)(row - table.rows) + 1, row->outcome[0],
                 decided);
    } while (table_advance(&table, combination));
    table_assert_used(&table);
}

/* A drive that the list has, or that nobody looked for, is no reason for an alarm. */
static void a_drive_nobody_looked_for_is_not_missing(void **state)
{
    int combination[FACTS] = {0};

    (void)state;
    do {
        struct attachment_facts given = facts_of(combination);

        if (given.list == LIST_HAS || given.list == LIST_UNREAD)
            assert_int_equal(attachment_decide(&given), ATTACHMENT_OPEN);
        if (given.list == LIST_REFUSED && given.record != RECORD_DIRECTORY)
            assert_int_equal(attachment_decide(&given), ATTACHMENT_OPEN);
    } while (table_advance(&table, combination));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_by_the_table),
        cmocka_unit_test(a_drive_nobody_looked_for_is_not_missing),
    };

    return cmocka_run_group_tests_name("attachment", tests, read_table, NULL);
}
