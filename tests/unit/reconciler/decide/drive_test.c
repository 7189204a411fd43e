/* SPDX-License-Identifier: Apache-2.0 */
/* drive_test.c - the table of drives in docs/states.md against the code, cell by cell; and what
 * holds whatever the table says. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/decide_drive.h"

enum { PHASE, VM, WANTED, DISK, RETURNS, VMM, GUEST, FACTS };

static const struct table_fact facts[FACTS] = {
    [PHASE] = {"phase", {"planned", "mounting", "in_use", "leaving", "flushed", "ended"}},
    [VM] = {"vm", {"gone", "alive"}},
    [WANTED] = {"wanted", {"no", "yes"}},
    [DISK] = {"disk", {"closed", "open"}},
    [RETURNS] = {"returns", {"no", "yes"}},
    [VMM] = {"vmm", {"unknown", "absent", "partly", "has", "leaving"}},
    [GUEST] = {"guest", {"unknown", "absent", "mounted"}},
};

static const char *const acts[DRIVE_ACTS] = {"nothing",    "look_vmm", "claim",  "attach",
                                             "look_guest", "mount",    "answer", "unmount",
                                             "remove",     "end"};

static struct table table = {
    .marker = "<!-- drives -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 2,
};

static struct drive_facts facts_of(const int *combination, enum drive_state state)
{
    return (struct drive_facts){
        .state = state,
        .vm_is_alive = combination[VM] != 0,
        .is_wanted = combination[WANTED] != 0,
        .is_open = combination[DISK] != 0,
        .may_return = combination[RETURNS] != 0,
        .vmm = combination[VMM],
        .guest = combination[GUEST],
    };
}

static void expect_row(const int *combination, enum drive_state state)
{
    struct drive_facts given = facts_of(combination, state);
    struct drive_decision decision = drive_decide(&given);
    const struct table_row *row = table_match(&table, combination);
    const bool is_same = decision.state == state && strcmp(row->outcome[1], "same") == 0;
    const char *decided[] = {acts[decision.act],
                             is_same ? "same" : drive_state_name(decision.state)};

    table_expect(&table, combination, row, decided);
}

/* Another version's state too. */
static void every_combination_is_decided_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    do
        for (unsigned i = 0; i <= DRIVE_STATES; i++)
            if (drive_phase(i) == (enum drive_phase)combination[PHASE])
                expect_row(combination, i);
    while (table_advance(&table, combination));
    table_assert_used(&table);
}

static void expect_safe(const struct drive_facts *given)
{
    struct drive_decision decision = drive_decide(given);
    bool comes = decision.act == DRIVE_CLAIM || decision.act == DRIVE_ATTACH ||
                 decision.act == DRIVE_MOUNT || decision.act == DRIVE_ANSWER;

    assert_false(comes && (!given->is_wanted || !given->vm_is_alive));
    /* No disk is taken from under a mounted file system. */
    if (decision.act == DRIVE_REMOVE && given->vmm == DRIVE_IN_VMM_HAS)
        assert_true(drive_state_is_flushed(given->state));
    /* A state that says that the guest has let go is never guessed. */
    if (decision.act == DRIVE_REMOVE && drive_state_is_flushed(decision.state))
        assert_true(drive_state_is_flushed(given->state));
    /* "Removed" and "failed" say that nothing is missing on the disk, and that nobody has it. */
    if (decision.act == DRIVE_END && decision.state != DRIVE_LOST)
        assert_true(drive_state_is_flushed(given->state) &&
                    (!given->vm_is_alive || given->vmm == DRIVE_IN_VMM_ABSENT));
    /* Nothing is taken from the VMM that the guest may have found again. */
    if (decision.act == DRIVE_REMOVE)
        assert_false(given->may_return);
    /* A guest is asked only about a disk that its VM has. */
    if (decision.act == DRIVE_MOUNT || (decision.act == DRIVE_UNMOUNT && !given->may_return))
        assert_int_equal(given->vmm, DRIVE_IN_VMM_HAS);
    if (decision.act == DRIVE_MOUNT)
        assert_false(drive_state_is_flushed(decision.state));
    assert_int_equal(decision.act == DRIVE_END,
                     drive_state_is_end(decision.state) && !drive_state_is_end(given->state));
}

static void no_decision_loses_data_or_a_disk(void **state)
{
    int combination[FACTS] = {0};

    do
        for (unsigned i = 0; i <= DRIVE_STATES; i++) {
            struct drive_facts given = facts_of(combination, i);

            expect_safe(&given);
        }
    while (table_advance(&table, combination));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_by_the_table),
        cmocka_unit_test(no_decision_loses_data_or_a_disk),
    };

    return cmocka_run_group_tests_name("drive", tests, NULL, NULL);
}
