/* SPDX-License-Identifier: Apache-2.0 */
/* guest_route_test.c - which routes there are, their order, and what is said when none works. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "agent-client/guest_route.h"
#include "lib/cleanup.h"

static const enum guest_route all[GUEST_ROUTES] = {ROUTE_COMPANION, ROUTE_AGENT, ROUTE_SHIM,
                                                   ROUTE_HELPER};

static const struct guest_target whole = {
    .agent_address = "vsock://3:1024",
    .guest_path = "/run/volume",
    .companion_port = 1030,
    .has_shim = true,
    .has_helper = true,
};

static enum guest_route next(struct guest_walk *walk, const struct guest_target *target)
{
    return guest_walk_next(walk, target) ? walk->route : ROUTE_NONE;
}

static void note(struct guest_walk *walk, enum volume_reason reason, const char *text)
{
    struct error error;

    (void)error_set(&error, 0, "%s", text);
    guest_walk_note(walk, reason, strcmp(text, "no text") != 0, &error);
}

static void routes_are_tried_in_the_configured_order(void **state)
{
    static const enum guest_route order[GUEST_ROUTES] = {ROUTE_SHIM, ROUTE_AGENT};
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, all, NULL);
    assert_int_equal(next(&walk, &whole), ROUTE_COMPANION);
    assert_string_equal(walk.address, "vsock://3:1030");
    assert_int_equal(next(&walk, &whole), ROUTE_AGENT);
    assert_string_equal(walk.address, "vsock://3:1024");
    assert_int_equal(next(&walk, &whole), ROUTE_SHIM);
    assert_int_equal(next(&walk, &whole), ROUTE_HELPER);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
    guest_walk_begin(&walk, order, NULL);
    assert_int_equal(next(&walk, &whole), ROUTE_SHIM);
    assert_int_equal(next(&walk, &whole), ROUTE_AGENT);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
}

/* Which of all routes a volume's guest has, as letters. */
static void routes_of(const struct guest_target *target, char ret_routes[static GUEST_ROUTES])
{
    static const char letters[GUEST_ROUTES] = {
        [ROUTE_COMPANION] = 'c', [ROUTE_AGENT] = 'a', [ROUTE_SHIM] = 's', [ROUTE_HELPER] = 'h'};
    struct guest_walk walk;
    size_t count = 0;

    guest_walk_begin(&walk, all, NULL);
    while (guest_walk_next(&walk, target))
        ret_routes[count++] = letters[walk.route];
    ret_routes[count] = '\0';
}

static void the_guests_record_decides_its_routes(void **state)
{
    static const struct {
        struct guest_target target;
        const char *routes;
    } table[] = {
        {{.agent_address = "", .guest_path = ""}, ""},
        {{.agent_address = "", .guest_path = "/a"}, ""},
        {{.agent_address = "vsock://3:1024", .guest_path = ""}, ""},
        {{.agent_address = "vsock://3:1024", .guest_path = "/a"}, "ca"},
        /* Kata's agent knows no disks. */
        {{.agent_address = "vsock://3:1024", .guest_path = "pci:02"}, "c"},
        /* Without ports either may listen there. */
        {{.agent_address = "unix:///a", .guest_path = "pci:02"}, "a"},
        {{.agent_address = "unix:///a", .guest_path = "/a"}, "a"},
        {{.agent_address = "", .guest_path = "", .has_shim = true}, "s"},
        {{.agent_address = "", .guest_path = "", .has_helper = true}, "h"},
        {{.agent_address = "vsock://3:1024", .guest_path = "/a", .has_shim = true}, "cas"},
    };
    char routes[GUEST_ROUTES + 1];

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        routes_of(&table[i].target, routes);
        assert_string_equal(routes, table[i].routes);
    }
}

static void unable_route_is_skipped_and_its_reason_kept(void **state)
{
    const enum volume_reason inability[GUEST_ROUTES] = {
        [ROUTE_COMPANION] = REASON_AGENT_UNSUPPORTED,
        [ROUTE_SHIM] = REASON_AGENT_DENIED,
        [ROUTE_HELPER] = REASON_HELPER_NO_CGROUPS,
    };
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, all, inability);
    assert_int_equal(next(&walk, &whole), ROUTE_AGENT);
    assert_int_equal(walk.reason, REASON_AGENT_UNSUPPORTED);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
    /* It is no word of this walk's helper, so it does not outweigh the others. */
    assert_int_equal(walk.helper_reason, REASON_NONE);
    assert_int_equal(walk.reason, REASON_HELPER_NO_CGROUPS);
    assert_non_null(strstr(walk.error.text, "helper_no_cgroups"));
}

static void the_helper_is_not_tried_where_the_agent_is_silent(void **state)
{
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, all, NULL);
    (void)next(&walk, &whole);
    note(&walk, REASON_AGENT_UNREACHABLE, "no companion");
    assert_int_equal(next(&walk, &whole), ROUTE_AGENT);
    note(&walk, REASON_AGENT_UNREACHABLE, "no agent");
    assert_int_equal(next(&walk, &whole), ROUTE_SHIM);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
}

static void time_is_cut_into_parts_for_the_routes_that_are_left(void **state)
{
    const enum volume_reason inability[GUEST_ROUTES] = {[ROUTE_SHIM] = REASON_AGENT_DENIED};
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, all, NULL);
    (void)next(&walk, &whole);
    assert_int_equal(guest_walk_parts(&walk, &whole), 3); /* the helper has a time of its own */
    (void)next(&walk, &whole);
    (void)next(&walk, &whole);
    assert_int_equal(guest_walk_parts(&walk, &whole), 1);
    guest_walk_begin(&walk, all, inability);
    (void)next(&walk, &whole);
    assert_int_equal(guest_walk_parts(&walk, &whole), 2);
}

static void the_most_telling_reason_is_reported(void **state)
{
    static const struct {
        enum volume_reason reason;
        const char *text;
    } telling[] = {
        {REASON_AGENT_UNREACHABLE, "no answer"}, {REASON_AGENT_FAILED, "no text"},
        {REASON_AGENT_UNSUPPORTED, "no call"},   {REASON_AGENT_DENIED, "by policy"},
        {REASON_AGENT_FAILED, "bad magic"},
    };
    struct guest_walk walk;

    (void)state;
    for (size_t more = 0; more < array_length(telling); more++)
        for (size_t less = 0; less <= more; less++) {
            guest_walk_begin(&walk, all, NULL);
            note(&walk, telling[more].reason, telling[more].text);
            note(&walk, telling[less].reason, telling[less].text);
            assert_int_equal(walk.reason, telling[more].reason);
            assert_string_equal(walk.error.text, telling[more].text);
            guest_walk_begin(&walk, all, NULL);
            note(&walk, telling[less].reason, telling[less].text);
            note(&walk, telling[more].reason, telling[more].text);
            assert_string_equal(walk.error.text, telling[more].text);
        }
}

static void the_latest_of_equally_telling_reasons_is_reported(void **state)
{
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, all, NULL);
    note(&walk, REASON_AGENT_FAILED, "kata-agent: it failed");
    note(&walk, REASON_AGENT_FAILED, "the helper: bad magic");
    assert_string_equal(walk.error.text, "the helper: bad magic");
}

static void the_helper_is_tried_after_a_route_that_failed(void **state)
{
    struct guest_walk walk;

    (void)state;
    assert_false(guest_route_ends_resize(REASON_AGENT_FAILED));
    guest_walk_begin(&walk, all, NULL);
    (void)next(&walk, &whole);
    (void)next(&walk, &whole);
    note(&walk, REASON_AGENT_FAILED, "resize2fs: bad magic");
    assert_int_equal(next(&walk, &whole), ROUTE_SHIM);
    note(&walk, REASON_AGENT_FAILED, "no text");
    assert_int_equal(next(&walk, &whole), ROUTE_HELPER);
    note(&walk, REASON_HELPER_MISSING, "no such file");
    guest_walk_conclude(&walk);
    assert_int_equal(walk.reason, REASON_AGENT_FAILED);
    assert_string_equal(walk.error.text, "resize2fs: bad magic");
}

static void a_helper_that_may_come_later_outweighs_what_never_heals(void **state)
{
    const enum guest_route helper[GUEST_ROUTES] = {ROUTE_HELPER};
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, helper, NULL);
    note(&walk, REASON_AGENT_DENIED, "by policy");
    assert_int_equal(next(&walk, &whole), ROUTE_HELPER);
    note(&walk, REASON_AGENT_UNREACHABLE, "no time");
    guest_walk_conclude(&walk);
    assert_int_equal(walk.reason, REASON_AGENT_UNREACHABLE);
    assert_string_equal(walk.error.text, "no time");

    guest_walk_begin(&walk, helper, NULL);
    note(&walk, REASON_AGENT_DENIED, "by policy");
    (void)next(&walk, &whole);
    note(&walk, REASON_AGENT_UNSUPPORTED, "no containers");
    guest_walk_conclude(&walk);
    assert_int_equal(walk.reason, REASON_AGENT_DENIED);
}

static void a_guest_without_a_route_is_reported(void **state)
{
    const enum guest_route none[GUEST_ROUTES] = {ROUTE_NONE};
    struct guest_walk walk;

    (void)state;
    guest_walk_begin(&walk, none, NULL);
    assert_int_equal(next(&walk, &whole), ROUTE_NONE);
    guest_walk_conclude(&walk);
    assert_int_equal(walk.reason, REASON_AGENT_UNREACHABLE);
    assert_string_equal(walk.error.text, "agent.routes has no route to this agent");
}

static void an_outcome_has_a_reason_and_shows_what_the_route_can_do(void **state)
{
    static const struct {
        enum volume_reason reason;
        const char *ability;
        bool listed;
    } table[AGENT_OUTCOMES] = {
        [AGENT_DONE] = {REASON_NONE, "able", true},
        [AGENT_UNREACHABLE] = {REASON_AGENT_UNREACHABLE, NULL, true},
        [AGENT_UNSUPPORTED] = {REASON_AGENT_UNSUPPORTED, "agent_unsupported", true},
        [AGENT_DENIED] = {REASON_AGENT_DENIED, "agent_denied", true},
        [AGENT_LAYER] = {REASON_GUEST_LAYER_UNSUPPORTED, "able", true},
        [AGENT_NOT_GROWABLE] = {REASON_FILE_SYSTEM_NOT_GROWABLE, "able", true},
        [AGENT_READ_ONLY] = {REASON_READ_ONLY, "able", true},
        [AGENT_SHUT_DOWN] = {REASON_FILE_SYSTEM_SHUT_DOWN, "able", true},
        [AGENT_LIMIT] = {REASON_FILE_SYSTEM_LIMIT, "able", true},
        [AGENT_GROWING] = {REASON_GROWING, "able", true},
        [AGENT_FAILED] = {REASON_AGENT_FAILED, "able", true},
        [AGENT_UNEXPLAINED] = {REASON_AGENT_FAILED, NULL, true},
    };

    (void)state;
    for (unsigned i = 0; i < AGENT_OUTCOMES; i++) {
        if (!table[i].listed)
            fail_msg("outcome %u is not in this table", i);
        assert_int_equal(guest_route_reason(i), table[i].reason);
        if (table[i].ability)
            assert_string_equal(guest_route_ability(i), table[i].ability);
        else
            assert_null(guest_route_ability(i));
    }
    assert_true(guest_route_ends_resize(REASON_GUEST_LAYER_UNSUPPORTED));
    assert_true(guest_route_ends_resize(REASON_FILE_SYSTEM_NOT_GROWABLE));
    assert_true(guest_route_ends_resize(REASON_READ_ONLY));
    assert_true(guest_route_ends_resize(REASON_FILE_SYSTEM_SHUT_DOWN));
    assert_true(guest_route_ends_resize(REASON_FILE_SYSTEM_LIMIT));
    assert_true(guest_route_ends_resize(REASON_GROWING));
    assert_false(guest_route_ends_resize(REASON_AGENT_DENIED));
    assert_false(guest_route_ends_resize(REASON_AGENT_UNREACHABLE));
}

/* The table of docs/states.md: each reason why a guest does not follow has a row, which says
 * whether the next route is tried. That of a route hung up on without a status repeats
 * agent_failed. */
static void the_page_has_every_reason_of_a_route(void **state)
{
    FILE *page = fopen("docs/states.md", "re");
    bool inside = false, seen[REASONS] = {0};
    char line[1024], reasons[256], remembered[128], next[16], *name, *rest;

    (void)state;
    assert_non_null(page);
    while (fgets(line, sizeof(line), page)) {
        inside |= strstr(line, "<!-- routes -->") != NULL;
        if (!inside ||
            sscanf(line, "| %*[^|]|%255[^|]|%127[^|]|%15[^|]", reasons, remembered, next) != 3)
            continue;
        if (strchr(line, '#'))
            break;
        for (rest = reasons; (name = strsep(&rest, " ,"));) {
            enum volume_reason reason = reason_from_name(name);

            if (reason == REASON_NONE)
                continue;
            if (!seen[reason] && guest_route_ends_resize(reason) != (strcmp(next, " no ") == 0))
                fail_msg("%s: the page and the code disagree on the next route", name);
            seen[reason] = true;
        }
    }
    (void)fclose(page);
    for (unsigned i = REASON_OF_GUEST_FIRST; i <= REASON_OF_GUEST_LAST; i++)
        if (!seen[i])
            fail_msg("%s is in no row", reason_name(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_tried_in_the_configured_order),
        cmocka_unit_test(the_guests_record_decides_its_routes),
        cmocka_unit_test(unable_route_is_skipped_and_its_reason_kept),
        cmocka_unit_test(the_helper_is_not_tried_where_the_agent_is_silent),
        cmocka_unit_test(time_is_cut_into_parts_for_the_routes_that_are_left),
        cmocka_unit_test(the_most_telling_reason_is_reported),
        cmocka_unit_test(the_latest_of_equally_telling_reasons_is_reported),
        cmocka_unit_test(the_helper_is_tried_after_a_route_that_failed),
        cmocka_unit_test(a_helper_that_may_come_later_outweighs_what_never_heals),
        cmocka_unit_test(a_guest_without_a_route_is_reported),
        cmocka_unit_test(an_outcome_has_a_reason_and_shows_what_the_route_can_do),
        cmocka_unit_test(the_page_has_every_reason_of_a_route),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
