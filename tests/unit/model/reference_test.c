/* SPDX-License-Identifier: Apache-2.0 */
/* reference_test.c - pages of docs/reference/ against the tables of words. */
#include "tests/unit/reference.h"

#include <stdio.h>
#include <string.h>

#include "model/drive.h"
#include "model/reason.h"
#include "model/sandbox.h"
#include "model/stale_reason.h"

#define PAGE "docs/reference/states-and-reasons.md"

static void every_state_has_its_row(void **state)
{
    struct reference page;

    reference_open(&page, PAGE, "states");
    for (unsigned i = 0; i < STATES; i++) {
        reference_expect(&page, state_name(i));
        reference_expect_words(&page, 1);
    }
    reference_expect_end(&page);
}

static void every_state_of_drives_has_its_row(void **state)
{
    struct reference page;

    reference_open(&page, PAGE, "drive_states");
    for (unsigned i = 0; i < DRIVE_STATES; i++) {
        reference_expect(&page, drive_state_name(i));
        reference_expect_words(&page, 1);
    }
    reference_expect_end(&page);
}

static void states_text(enum volume_reason reason, char *ret_text, size_t size)
{
    *ret_text = '\0';
    for (unsigned i = 0; i < STATES; i++)
        if (reason_is_of(reason, i))
            reference_append(ret_text, size, state_name(i));
    if (reason_explain_resizable(reason))
        reference_append(ret_text, size, "resizable");
}

/* "no", or "no; block_grown: yes" where a state differs from what holds in general. */
static void by_state(const char *(*text_in)(enum volume_reason reason, enum volume_state state),
                     enum volume_reason reason, char *ret_text, size_t size)
{
    const char *general = text_in(reason, STATES);

    (void)snprintf(ret_text, size, "%s", reason == REASON_NONE ? "" : general);
    for (unsigned i = 0; i < STATES; i++)
        if (reason_is_of(reason, i) && strcmp(text_in(reason, i), general) != 0)
            (void)snprintf(ret_text + strlen(ret_text), size - strlen(ret_text), "; %s: %s",
                           state_name(i), text_in(reason, i));
}

static const char *status_in(enum volume_reason reason, enum volume_state state)
{
    return status_name(reason_code(reason, state));
}

static const char *retried_in(enum volume_reason reason, enum volume_state state)
{
    return reason_heals(reason, state) ? "yes" : "no";
}

static void every_reason_has_its_row(void **state)
{
    struct reference page;

    reference_open(&page, PAGE, "reasons");
    for (unsigned i = 0; i < REASONS; i++) {
        char states[256], status[128], retried[64];

        states_text(i, states, sizeof(states));
        reference_expect(&page, reason_name(i));
        reference_expect_cell(&page, 1, states);
        by_state(status_in, i, status, sizeof(status));
        reference_expect_cell(&page, 2, status);
        by_state(retried_in, i, retried, sizeof(retried));
        reference_expect_cell(&page, 3, retried);
        reference_expect_words(&page, 4);
    }
    reference_expect_end(&page);
}

/* In the order of the enum: kept, removed, and what may come of a removal. */
static void every_stale_reason_has_its_row(void **state)
{
    struct reference page;

    reference_open(&page, PAGE, "stale");
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++) {
        reference_expect(&page, stale_reason_name(i));
        if (i <= STALE_REASON_RATE_LIMIT)
            reference_expect_cell(&page, 1, "kept");
        else if (i <= STALE_REASON_STAGED_AGAIN)
            reference_expect_cell(&page, 1, "removed");
        else if (i >= STALE_REASON_EMPTY_DIR)
            reference_expect_cell(&page, 1, "not_stale");
        reference_expect_words(&page, 1);
        reference_expect_words(&page, 2);
    }
    reference_expect_end(&page);
}

/* In the order of the enum, and unknown last. */
static void every_hypervisor_is_in_its_row(void **state)
{
    struct reference page;
    char names[256] = "";

    for (unsigned i = HYPERVISOR_UNKNOWN + 1; i < HYPERVISOR_KINDS; i++)
        reference_append(names, sizeof(names), hypervisor_name(i));
    assert_true(strlen(names) + sizeof(" or unknown") <= sizeof(names));
    strcat(names, " or unknown");
    reference_open(&page, "docs/reference/audit-views.md", "audit_sandboxes");
    do
        assert_true(reference_next(&page));
    while (strcmp(page.cell[0], "hypervisor") != 0);
    reference_expect_cell(&page, 1, names);
    reference_close(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_its_row),
        cmocka_unit_test(every_state_of_drives_has_its_row),
        cmocka_unit_test(every_reason_has_its_row),
        cmocka_unit_test(every_stale_reason_has_its_row),
        cmocka_unit_test(every_hypervisor_is_in_its_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
