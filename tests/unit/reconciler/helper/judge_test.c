/* SPDX-License-Identifier: Apache-2.0 */
/* judge_test.c - what a report says of one volume, which may be mounted at one of several places.
 */
#include "tests/unit/test.h"

#include <string.h>

#include "reconciler/helper/report.h"

enum { SIZE = 1000, OTHER = 2000 };

static struct helper_volume volume_of(uint64_t device_bytes, enum helper_fault fault)
{
    struct helper_volume volume = {
        .fault = fault,
        .device_bytes = device_bytes,
        .stats = {.has_bytes = true, .total = device_bytes - 1},
    };

    if (fault != HELPER_FAULT_NONE)
        (void)strcpy(volume.text, "why");
    return volume;
}

static struct helper_verdict judge(const struct helper_volume *volume, unsigned volumes, bool grew)
{
    struct helper_verdict verdict;

    helper_judge(volume, volumes, SIZE, grew, &verdict);
    return verdict;
}

static void a_single_place_is_the_volumes(void **state)
{
    struct helper_volume volume = volume_of(SIZE, HELPER_FAULT_NONE);
    struct helper_verdict verdict = judge(&volume, 1, true);

    (void)state;
    assert_int_equal(verdict.reason, REASON_NONE);
    assert_int_equal(verdict.device_bytes, SIZE);
    assert_int_equal(verdict.stats.total, SIZE - 1);
}

static void faults_have_their_reasons(void **state)
{
    static const struct {
        enum helper_fault fault;
        enum volume_reason reason;
    } cases[] = {
        {HELPER_FAULT_NOT_MOUNTED, REASON_GUEST_PATH_UNKNOWN},
        {HELPER_FAULT_NOT_A_BLOCK_DEVICE, REASON_GUEST_PATH_UNKNOWN},
        {HELPER_FAULT_UNSUPPORTED, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {HELPER_FAULT_REFUSED, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {HELPER_FAULT_READ_ONLY, REASON_READ_ONLY},
        {HELPER_FAULT_ERRORS, REASON_FILE_SYSTEM_NOT_GROWABLE},
        {HELPER_FAULT_SHUT_DOWN, REASON_FILE_SYSTEM_SHUT_DOWN},
        {HELPER_FAULT_NO_CAPABILITY, REASON_HELPER_FAILED},
        {HELPER_FAULT_BUSY, REASON_AGENT_FAILED},
        {HELPER_FAULT_TIMED_OUT, REASON_AGENT_FAILED},
        {HELPER_FAULT_LIMIT, REASON_FILE_SYSTEM_LIMIT},
        {HELPER_FAULT_GROWING, REASON_GROWING},
        {HELPER_FAULT_FAILED, REASON_AGENT_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct helper_volume volume = volume_of(SIZE, cases[i].fault);
        struct helper_verdict verdict = judge(&volume, 1, true);

        assert_int_equal(verdict.reason, cases[i].reason);
        assert_string_equal(verdict.text, "why");
        /* A file system that cannot grow can be counted. */
        assert_int_equal(judge(&volume, 1, false).reason, REASON_NONE);
        volume.stats.has_bytes = false;
        assert_int_equal(judge(&volume, 1, false).reason, cases[i].reason);
    }
}

static void a_device_that_has_not_grown_is_a_failure(void **state)
{
    struct helper_volume volume = volume_of(SIZE - 1, HELPER_FAULT_NONE);

    (void)state;
    assert_int_equal(judge(&volume, 1, true).reason, REASON_AGENT_FAILED);
    assert_int_equal(judge(&volume, 1, false).reason, REASON_NONE);
    (void)strcpy(volume.layer, "dm-0 stands between");
    assert_int_equal(judge(&volume, 1, true).reason, REASON_GUEST_LAYER_UNSUPPORTED);
}

static void among_several_places_the_size_decides(void **state)
{
    struct helper_volume volume[] = {
        volume_of(OTHER, HELPER_FAULT_NONE),
        volume_of(SIZE, HELPER_FAULT_READ_ONLY),
        volume_of(0, HELPER_FAULT_NOT_MOUNTED),
    };

    (void)state;
    assert_int_equal(judge(volume, 3, true).reason, REASON_READ_ONLY);
    volume[1] = volume_of(SIZE, HELPER_FAULT_NONE);
    assert_int_equal(judge(volume, 3, true).stats.total, SIZE - 1);
    volume[1] = volume_of(0, HELPER_FAULT_NOT_MOUNTED);
    /* Only one is mounted, and it is behind a layer that takes some bytes. */
    assert_int_equal(judge(volume, 3, true).stats.total, OTHER - 1);
    volume[1] = volume_of(OTHER, HELPER_FAULT_NONE);
    assert_int_equal(judge(volume, 3, true).reason, REASON_GUEST_PATH_UNKNOWN);
}

static void alike_ones_are_grown_and_not_counted(void **state)
{
    struct helper_volume volume[] = {
        volume_of(SIZE, HELPER_FAULT_NONE),
        volume_of(SIZE, HELPER_FAULT_NONE),
    };
    struct helper_verdict verdict = judge(volume, 2, true);

    (void)state;
    assert_int_equal(verdict.reason, REASON_NONE);
    assert_false(verdict.stats.has_bytes);
    assert_int_equal(judge(volume, 2, false).reason, REASON_GUEST_PATH_UNKNOWN);
    volume[1].fault = HELPER_FAULT_ERRORS;
    assert_int_equal(judge(volume, 2, true).reason, REASON_FILE_SYSTEM_NOT_GROWABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_place_is_the_volumes),
        cmocka_unit_test(faults_have_their_reasons),
        cmocka_unit_test(a_device_that_has_not_grown_is_a_failure),
        cmocka_unit_test(among_several_places_the_size_decides),
        cmocka_unit_test(alike_ones_are_grown_and_not_counted),
    };

    return cmocka_run_group_tests_name("helper_judge", tests, NULL, NULL);
}
