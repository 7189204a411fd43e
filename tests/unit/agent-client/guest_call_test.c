/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call_test.c - the walk along the routes, with routes that answer as a script says: which
 * there are, their order, and what is said when none works.
 *
 * The agent's, the shim's and the HTTP client are replaced by link, and so are jobs: they run in
 * this process, and are answered from the loop.
 */
#include "tests/unit/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/agent_client.h"
#include "agent-client/guest_call.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/path.h"
#include "lib/workers.h"

/* How one call is answered. */
struct step {
    char route; /* c, a, s, h: who must be asked; 'u' the shim's /agent-url */
    enum agent_outcome outcome, stats_outcome;
    enum volume_reason reason; /* of a helper */
    bool has_bytes;
    int refused; /* the call cannot even be made */
};

struct helper_call {
    guest_helper_done *done;
};
static struct {
    struct loop loop;
    char directory[SCRATCH_BYTES], socket[96];
    int root, listener;
    const struct guest_request *request;
    const struct step *script;
    unsigned steps, position;
    bool resizes; /* the last call */
    const char *url;
    unsigned url_status;
    bool helper_is_possible;
    struct loop_timer timer;
    struct job *job;
    struct buffer answers; /* of the job */
    bool is_lost;          /* the next job */
    struct helper_call *call;
    void *userdata;
    unsigned alive; /* calls that were not freed */
    unsigned dones;
    struct guest_reply reply;
} test;

/* ---- the fakes ---- */

static const struct step *next_step(char route)
{
    const struct step *step = &test.script[test.position];

    assert_true(test.position < test.steps);
    assert_int_equal(route, step->route);
    test.position++;
    return step;
}

static struct agent_reply scripted(const struct step *step)
{
    struct agent_reply reply = {
        .outcome = step->outcome,
        .stats_outcome = step->stats_outcome,
        .stats = {.has_bytes = step->has_bytes, .total = 7},
    };

    if (step->outcome != AGENT_DONE || step->stats_outcome != AGENT_DONE)
        (void)error_set(&reply.error, 0, "step %u", test.position - 1);
    return reply;
}

static void answer_job(struct loop_timer *timer)
{
    struct job *job = test.job;

    job->is_running = false;
    test.alive--;
    job->request.done(job, test.is_lost ? JOB_DIED : JOB_ANSWERED, buffer_text(&test.answers),
                      test.answers.length);
}

int job_start(struct job *job, const struct job_request *request)
{
    const struct job_input input = {request->data, request->length, {request->fds[0], -1}, 0};

    if (test.script[test.position].refused)
        return test.script[test.position++].refused;
    buffer_clear(&test.answers);
    if (!test.is_lost)
        request->act(&input, &test.answers);
    job->request = *request;
    job->is_running = true;
    test.job = job;
    test.alive++;
    loop_timer_start(&test.loop, &test.timer, 0, answer_job);
    return 0;
}

void job_cancel(struct job *job)
{
    if (!job->is_running)
        return;
    test.alive--;
    loop_timer_stop(&test.timer);
}

/* Whoever is asked has to be this sandbox's. */
enum { VMM = 100 };

void agent_call_run(const struct agent_request *request, uint64_t until_ns,
                    struct agent_reply *reply)
{
    bool is_companion = strcmp(request->address, "vsock://3:1030") == 0;

    assert_true(is_companion || strcmp(request->address, test.request->agent_address) == 0 ||
                strcmp(request->address, test.url) == 0);
    assert_int_equal(request->listener.vmm, VMM);
    assert_string_equal(request->listener.sandbox_id, "sandbox-1");
    assert_string_equal(request->volume, test.request->guest_path);
    test.resizes = request->resizes;
    *reply = scripted(next_step(is_companion ? 'c' : 'a'));
}

void shim_call_run(const struct agent_request *request, enum shim_dialect dialect,
                   uint64_t until_ns, struct agent_reply *reply)
{
    assert_string_equal(request->address, test.socket);
    assert_string_equal(request->volume, "/dev/sdx");
    assert_int_equal(request->listener.vmm, VMM);
    test.resizes = request->resizes;
    *reply = scripted(next_step('s'));
}

enum http_exchange_end http_exchange_perform(const struct http_exchange_request *request,
                                             uint64_t until_ns, unsigned *ret_status,
                                             struct buffer *ret_body, struct error *error)
{
    (void)next_step('u');
    assert_string_equal(request->target, "/agent-url");
    assert_int_equal(request->listener.vmm, VMM);
    (void)error_set(error, 0, "no socket");
    *ret_status = test.url_status;
    if (test.url)
        assert_int_equal(buffer_append_text(ret_body, test.url), 0);
    return test.url ? HTTP_EXCHANGE_ANSWERED : HTTP_EXCHANGE_NO_SOCKET;
}

static struct helper_call *helper_free(struct helper_call *call)
{
    test.alive--;
    loop_timer_stop(&test.timer);
    free(call);
    return NULL;
}

static bool helper_is_possible(void *owner)
{
    return test.helper_is_possible;
}

static void answer_helper(struct loop_timer *timer)
{
    const struct step *step = &test.script[test.position - 1];
    struct guest_helper_reply reply = {
        .reason = step->reason,
        .stats = {.has_bytes = step->has_bytes, .total = 9},
        .age_ns = 5,
    };
    struct helper_call *call = test.call;
    guest_helper_done *done = call->done;

    (void)error_set(&reply.error, 0, "helper");
    (void)helper_free(call);
    done(&reply, test.userdata);
}

static int helper_begin(void *owner, uint64_t deadline_ns, guest_helper_done *done, void *userdata,
                        struct helper_call **ret_call)
{
    (void)next_step('h');
    *ret_call = test.call = malloc(sizeof(**ret_call));
    test.call->done = done;
    test.userdata = userdata;
    test.alive++;
    loop_timer_start(&test.loop, &test.timer, 0, answer_helper);
    return 0;
}

static const struct guest_helper_ops helper = {
    .is_possible = helper_is_possible,
    .begin = helper_begin,
    .free = helper_free,
};

/* ---- one walk ---- */

static void on_done(struct guest_call *call, const struct guest_reply *reply, void *userdata)
{
    test.dones++;
    test.reply = *reply;
    assert_null(guest_call_free(call));
    loop_stop(&test.loop);
}

static char address[64];

static struct guest_request request_of(bool resizes)
{
    (void)snprintf(address, sizeof(address), "vsock://3:1024");
    return (struct guest_request){
        .resizes = resizes,
        .root = test.root,
        .listener = {.vmm = VMM, .sandbox_id = "sandbox-1"},
        .order = {ROUTE_COMPANION, ROUTE_AGENT, ROUTE_SHIM, ROUTE_HELPER},
        .agent_address = address,
        .agent_address_size = sizeof(address),
        .guest_path = "/run/volume",
        .agent_port = 1024,
        .companion_port = 1030,
        .shim_socket = test.socket,
        .shim_volume = "/dev/sdx",
        .helper = &helper,
        .bytes = 4096,
        .ends_at = clock_boottime() + 60 * NSEC_PER_SEC,
    };
}

static const struct guest_reply *walk(const struct guest_request *request,
                                      const struct step *script, unsigned steps)
{
    struct guest_call *call;

    test.request = request;
    test.script = script;
    test.steps = steps;
    test.position = test.dones = 0;
    assert_int_equal(guest_call_new(&test.loop, request, on_done, NULL, &call), 0);
    assert_int_equal(test.dones, 0);
    loop_run(&test.loop);
    assert_int_equal(test.dones, 1);
    assert_int_equal(test.position, steps);
    assert_int_equal(test.alive, 0);
    return &test.reply;
}

#define WALK(request, ...)                                                                         \
    walk(request, (const struct step[]){__VA_ARGS__},                                              \
         sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

static int set_up(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    memset(&test, 0, sizeof(test));
    test.helper_is_possible = true;
    assert_int_equal(loop_init(&test.loop), 0);
    assert_int_equal(scratch_directory_make(test.directory), 0);
    (void)snprintf(test.socket, sizeof(test.socket), "%s/shim.sock", test.directory);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", test.socket);
    test.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(test.listener, (struct sockaddr *)&name, sizeof(name)), 0);
    return path_open_root("/", &test.root);
}

static int tear_down(void **state)
{
    buffer_done(&test.answers);
    fd_close(test.listener);
    fd_close(test.root);
    loop_done(&test.loop);
    return scratch_directory_remove(test.directory);
}

/* ---- tests ---- */

static void a_size_verifies_a_resize(void **state)
{
    const struct guest_request request = request_of(true);

    assert_int_equal(WALK(&request, {.route = 'c', .has_bytes = true})->reason, REASON_NONE);
    assert_true(test.resizes);
    assert_int_equal(test.reply.stats.total, 7);
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_UNREACHABLE})->reason,
                     REASON_UNVERIFIED);
    assert_int_equal(WALK(&request, {.route = 'c', .has_bytes = false})->reason, REASON_UNVERIFIED);
    assert_string_equal(test.reply.ability[ROUTE_COMPANION], "able");
}

static void a_route_that_fails_takes_no_other_away(void **state)
{
    const struct guest_request request = request_of(true);

    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_FAILED},
                          {.route = 'a', .outcome = AGENT_FAILED},
                          {.route = 's', .outcome = AGENT_UNEXPLAINED},
                          {.route = 'h', .has_bytes = true})
                         ->reason,
                     REASON_NONE);
    assert_true(test.reply.stats.has_bytes);
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_FAILED},
                          {.route = 'a', .outcome = AGENT_UNSUPPORTED},
                          {.route = 's', .outcome = AGENT_UNEXPLAINED},
                          {.route = 'h', .reason = REASON_HELPER_MISSING})
                         ->reason,
                     REASON_AGENT_FAILED);
    assert_string_equal(test.reply.error.text, "step 0");
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_LAYER})->reason,
                     REASON_GUEST_LAYER_UNSUPPORTED);
}

static void a_failure_without_a_word_leads_on(void **state)
{
    const struct guest_request request = request_of(true);
    const struct guest_reply *reply =
        WALK(&request, {.route = 'c', .outcome = AGENT_UNREACHABLE},
             {.route = 'a', .outcome = AGENT_DENIED}, {.route = 's', .outcome = AGENT_UNEXPLAINED},
             {.route = 'h', .reason = REASON_HELPER_NO_CGROUPS});

    assert_int_equal(reply->reason, REASON_HELPER_NO_CGROUPS);
    assert_string_equal(reply->error.text, "helper");
    assert_null(reply->ability[ROUTE_SHIM]);
    assert_null(reply->ability[ROUTE_HELPER]); /* its own to record */
}

static void counting_asks_on_whatever_fails(void **state)
{
    const struct guest_request request = request_of(false);
    const struct guest_reply *reply = WALK(
        &request, {.route = 'c', .outcome = AGENT_FAILED}, {.route = 'a', .outcome = AGENT_LAYER},
        {.route = 's', .outcome = AGENT_FAILED}, {.route = 'h', .has_bytes = true});

    assert_int_equal(reply->reason, REASON_NONE);
    assert_int_equal(reply->stats.total, 9);
    assert_int_equal(reply->age_ns, 5);
    assert_null(reply->ability[ROUTE_COMPANION]);
    assert_false(test.resizes);
}

static void helper_resizes_or_reports_a_reason(void **state)
{
    struct guest_request request = request_of(true);

    request.order[0] = ROUTE_HELPER;
    request.order[1] = ROUTE_AGENT;
    request.order[2] = ROUTE_NONE;
    assert_int_equal(WALK(&request, {.route = 'h', .has_bytes = true})->reason, REASON_NONE);
    assert_int_equal(test.reply.stats.total, 9);
    assert_int_equal(
        WALK(&request, {.route = 'h', .reason = REASON_FILE_SYSTEM_NOT_GROWABLE})->reason,
        REASON_FILE_SYSTEM_NOT_GROWABLE);
    assert_int_equal(WALK(&request, {.route = 'h', .reason = REASON_HELPER_MISSING},
                          {.route = 'a', .has_bytes = true})
                         ->reason,
                     REASON_NONE);
}

static void a_call_that_cannot_be_made_leads_on(void **state)
{
    struct guest_request request = request_of(true);

    request.order[1] = ROUTE_NONE;
    request.order[2] = ROUTE_NONE;
    request.order[3] = ROUTE_NONE;
    assert_int_equal(WALK(&request, {.route = 'c', .refused = -ENOMEM})->reason,
                     REASON_AGENT_UNREACHABLE);
    assert_non_null(strstr(test.reply.error.text, "cannot call the agent"));
}

static void lost_worker_takes_one_route_away(void **state)
{
    struct guest_request request = request_of(true);

    test.is_lost = true;
    request.order[1] = ROUTE_HELPER;
    request.order[2] = request.order[3] = ROUTE_NONE;
    assert_int_equal(WALK(&request, {.route = 'h', .has_bytes = true})->reason, REASON_NONE);
    test.helper_is_possible = false;
    assert_int_equal(walk(&request, &(const struct step){0}, 0)->reason, REASON_AGENT_UNREACHABLE);
    assert_string_equal(test.reply.error.text, "the worker process that asked has died");
}

static void no_route_is_reported_from_the_loop(void **state)
{
    struct guest_request request = request_of(true);

    memset(request.order, 0, sizeof(request.order));
    assert_int_equal(walk(&request, NULL, 0)->reason, REASON_AGENT_UNREACHABLE);
    assert_string_equal(test.reply.error.text, "agent.routes has no route to this agent");
    request.guest_path = "pci:02/01";
    assert_int_equal(walk(&request, NULL, 0)->reason, REASON_GUEST_PATH_UNKNOWN);
}

static void shim_without_an_address_is_reported_if_no_route_is_left(void **state)
{
    struct guest_request request = request_of(true);

    request.asks_address = true;
    test.helper_is_possible = false;
    address[0] = '\0';
    request.order[2] = ROUTE_NONE; /* not the shim itself */
    assert_int_equal(WALK(&request, {.route = 'u'})->reason, REASON_AGENT_UNREACHABLE);
    assert_non_null(strstr(test.reply.error.text, "the shim cannot help: no socket"));
    assert_false(test.reply.address_learned);
    test.url = "nonsense";
    test.url_status = 200;
    (void)WALK(&request, {.route = 'u'});
    assert_non_null(strstr(test.reply.error.text, "the shim answers 200: nonsense"));
    assert_string_equal(address, "");
    test.url = "vsock://3:1024";
    assert_int_equal(WALK(&request, {.route = 'u'}, {.route = 'c', .has_bytes = true})->reason,
                     REASON_NONE);
    assert_true(test.reply.address_learned);
    assert_string_equal(address, "vsock://3:1024");
}

static void a_walk_may_be_ended_at_any_step(void **state)
{
    static const struct step script[] = {
        {.route = 'u'}, {.route = 'c'}, {.route = 's'}, {.route = 'h'}};
    static const enum guest_route route[] = {ROUTE_NONE, ROUTE_COMPANION, ROUTE_SHIM, ROUTE_HELPER};
    struct guest_request request = request_of(true);
    struct guest_call *call;

    test.dones = 0;
    for (unsigned i = 0; i < array_length(script); i++) {
        request = request_of(true);
        memset(request.order, 0, sizeof(request.order));
        request.order[0] = route[i];
        request.asks_address = i == 0;
        if (i == 0)
            address[0] = '\0';
        test.request = &request;
        test.script = &script[i];
        test.steps = 1;
        test.position = 0;
        for (unsigned begun = 0; begun < 2; begun++) {
            assert_int_equal(guest_call_new(&test.loop, &request, on_done, NULL, &call), 0);
            if (begun)
                loop_run_once(&test.loop);
            assert_int_equal(test.alive, begun);
            assert_null(guest_call_free(call));
            assert_int_equal(test.alive, 0);
        }
    }
    assert_int_equal(test.dones, 0);
}

static void the_guests_record_decides_its_routes(void **state)
{
    static const struct {
        const char *agent_address, *guest_path;
        bool has_shim, has_helper;
        const char *routes;
    } table[] = {
        {"", "", false, false, ""},
        {"", "/run/volume", false, false, ""},
        {"vsock://3:1024", "", false, false, ""},
        {"vsock://3:1024", "/run/volume", false, false, "ca"},
        /* Kata's agent knows no disks. */
        {"vsock://3:1024", "pci:02", false, false, "c"},
        /* Without ports either may listen there. */
        {"unix:///a", "pci:02", false, false, "a"},
        {"unix:///a", "/run/volume", false, false, "a"},
        {"", "", true, false, "s"},
        {"", "", false, true, "h"},
        {"vsock://3:1024", "/run/volume", true, true, "cash"},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        struct guest_request request = request_of(false);
        struct step script[GUEST_ROUTES] = {{0}};
        unsigned count = 0;

        (void)strcpy(address, table[i].agent_address);
        request.guest_path = table[i].guest_path;
        test.helper_is_possible = table[i].has_helper;
        if (!table[i].has_shim)
            request.shim_socket = NULL;
        for (const char *route = table[i].routes; *route; route++)
            script[count++] = (struct step){
                .route = *route, .outcome = AGENT_FAILED, .reason = REASON_HELPER_FAILED};
        (void)walk(&request, script, count);
    }
}

static void unable_route_is_skipped_and_its_reason_kept(void **state)
{
    struct guest_request request = request_of(true);

    request.inability[ROUTE_COMPANION] = REASON_AGENT_UNSUPPORTED;
    request.inability[ROUTE_SHIM] = REASON_AGENT_DENIED;
    request.inability[ROUTE_HELPER] = REASON_HELPER_NO_CGROUPS;
    assert_int_equal(WALK(&request, {.route = 'a', .outcome = AGENT_UNREACHABLE})->reason,
                     REASON_AGENT_DENIED);
    assert_non_null(strstr(test.reply.error.text, "agent_denied"));
    /* It is no word of this walk's helper, so it outweighs no other. */
    request.inability[ROUTE_SHIM] = REASON_NONE;
    assert_int_equal(WALK(&request, {.route = 'a', .outcome = AGENT_FAILED},
                          {.route = 's', .outcome = AGENT_DENIED})
                         ->reason,
                     REASON_AGENT_FAILED);
}

static void the_helper_is_not_tried_where_the_agent_is_silent(void **state)
{
    const struct guest_request request = request_of(true);

    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_UNREACHABLE},
                          {.route = 'a', .outcome = AGENT_UNREACHABLE},
                          {.route = 's', .outcome = AGENT_UNREACHABLE})
                         ->reason,
                     REASON_AGENT_UNREACHABLE);
}

static void the_most_telling_reason_is_reported(void **state)
{
    static const enum agent_outcome order[] = {AGENT_UNREACHABLE, AGENT_UNEXPLAINED,
                                               AGENT_UNSUPPORTED, AGENT_DENIED, AGENT_FAILED};
    static const enum volume_reason reasons[] = {REASON_AGENT_UNREACHABLE, REASON_AGENT_FAILED,
                                                 REASON_AGENT_UNSUPPORTED, REASON_AGENT_DENIED,
                                                 REASON_AGENT_FAILED};
    struct guest_request request = request_of(true);

    request.order[1] = ROUTE_SHIM;
    request.order[2] = request.order[3] = ROUTE_NONE;
    for (size_t more = 0; more < array_length(order); more++)
        for (size_t less = 0; less < more; less++) {
            assert_int_equal(WALK(&request, {.route = 'c', .outcome = order[more]},
                                  {.route = 's', .outcome = order[less]})
                                 ->reason,
                             reasons[more]);
            assert_string_equal(test.reply.error.text, "step 0");
            assert_int_equal(WALK(&request, {.route = 'c', .outcome = order[less]},
                                  {.route = 's', .outcome = order[more]})
                                 ->reason,
                             reasons[more]);
            assert_string_equal(test.reply.error.text, "step 1");
        }
}

static void a_helper_that_may_come_later_outweighs_what_never_heals(void **state)
{
    struct guest_request request = request_of(true);

    request.order[1] = ROUTE_HELPER;
    request.order[2] = request.order[3] = ROUTE_NONE;
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_DENIED},
                          {.route = 'h', .reason = REASON_AGENT_UNREACHABLE})
                         ->reason,
                     REASON_AGENT_UNREACHABLE);
    assert_string_equal(test.reply.error.text, "helper");
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_DENIED},
                          {.route = 'h', .reason = REASON_AGENT_UNSUPPORTED})
                         ->reason,
                     REASON_AGENT_DENIED);
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

    struct guest_request request = request_of(true);

    request.order[1] = request.order[2] = request.order[3] = ROUTE_NONE;
    for (unsigned i = 0; i < AGENT_OUTCOMES; i++) {
        if (!table[i].listed)
            fail_msg("outcome %u is not in this table", i);
        assert_int_equal(WALK(&request, {.route = 'c', .outcome = i, .has_bytes = true})->reason,
                         table[i].reason);
        if (table[i].ability)
            assert_string_equal(test.reply.ability[ROUTE_COMPANION], table[i].ability);
        else
            assert_null(test.reply.ability[ROUTE_COMPANION]);
    }
}

/* The table of docs/states.md: each reason why a guest does not follow has a row, which says
 * whether the next route is tried. That of a route hung up on without a status repeats
 * agent_failed. */
static void the_page_has_every_reason_of_a_route(void **state)
{
    FILE *page = fopen("docs/states.md", "re");
    bool inside = false, seen[REASONS] = {0};
    char line[1024], reasons[256], remembered[128], next[16], *name, *rest;

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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_size_verifies_a_resize),
        TEST(a_route_that_fails_takes_no_other_away),
        TEST(a_failure_without_a_word_leads_on),
        TEST(counting_asks_on_whatever_fails),
        TEST(helper_resizes_or_reports_a_reason),
        TEST(a_call_that_cannot_be_made_leads_on),
        TEST(lost_worker_takes_one_route_away),
        TEST(no_route_is_reported_from_the_loop),
        TEST(shim_without_an_address_is_reported_if_no_route_is_left),
        TEST(a_walk_may_be_ended_at_any_step),
        TEST(the_guests_record_decides_its_routes),
        TEST(unable_route_is_skipped_and_its_reason_kept),
        TEST(the_helper_is_not_tried_where_the_agent_is_silent),
        TEST(the_most_telling_reason_is_reported),
        TEST(a_helper_that_may_come_later_outweighs_what_never_heals),
        TEST(an_outcome_has_a_reason_and_shows_what_the_route_can_do),
        cmocka_unit_test(the_page_has_every_reason_of_a_route),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
