/* SPDX-License-Identifier: Apache-2.0 */
/* guest_call_test.c - the walk along the routes, with routes that answer as a script says.
 *
 * The agent's, the shim's and the HTTP client are replaced by link: what each would have been asked
 * is kept, and answered from the loop.
 */
#include "tests/unit/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/guest_call.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/path.h"

/* How one call is answered. */
struct step {
    char route; /* c, a, s, h: who must be asked; 'u' the shim's /agent-url */
    enum agent_outcome outcome, stats_outcome;
    enum volume_reason reason; /* of a helper */
    bool has_bytes;
    int refused; /* the call cannot even be made */
};

struct agent_call {
    agent_done *done;
};
struct shim_call {
    shim_done *done;
};
struct helper_call {
    guest_helper_done *done;
};
struct http_exchange {
    http_exchange_done *done;
};

static struct {
    struct loop loop;
    char directory[SCRATCH_BYTES], socket[96];
    int root, listener;
    const struct step *script;
    unsigned steps, position;
    enum agent_act act; /* of the last call */
    uint64_t deadline_ns;
    const char *url;
    unsigned url_status;
    bool helper_is_possible;
    struct loop_timer timer;
    void *call, *userdata;
    unsigned alive; /* calls that were not freed */
    unsigned dones;
    struct guest_reply reply;
} test;

/* ---- the fakes ---- */

#define CALL_NEW(ret_call, callback)                                                               \
    do {                                                                                           \
        *(ret_call) = malloc(sizeof(**(ret_call)));                                                \
        (*(ret_call))->done = (callback);                                                          \
    } while (0)

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

static int begin(char route, void (*answer)(struct loop_timer *timer), void **call, void *userdata)
{
    const struct step *step = &test.script[test.position];

    assert_true(test.position < test.steps);
    assert_int_equal(route, step->route);
    test.position++;
    if (step->refused) {
        free(*call);
        *call = NULL;
        return step->refused;
    }
    test.alive++;
    test.call = *call;
    test.userdata = userdata;
    loop_timer_start(&test.loop, &test.timer, 0, answer);
    return 0;
}

static void *end(void *call)
{
    if (call) {
        test.alive--;
        loop_timer_stop(&test.timer);
        free(call);
    }
    return NULL;
}

static void answer_agent(struct loop_timer *timer)
{
    struct agent_call *call = test.call;
    struct agent_reply reply = scripted(&test.script[test.position - 1]);

    (void)timer;
    call->done(call, &reply, test.userdata);
}

/* Whoever is asked has to be this sandbox's. */
enum { VMM = 100 };

int agent_call_new(struct loop *loop, const struct agent_request *request, agent_done *done,
                   void *userdata, struct agent_call **ret_call)
{
    bool is_companion = strcmp(request->address, "vsock://3:1030") == 0;

    assert_ptr_equal(loop, &test.loop);
    assert_true(is_companion || strcmp(request->address, "vsock://3:1024") == 0);
    assert_int_equal(request->listener.vmm, VMM);
    CALL_NEW(ret_call, done);
    test.act = request->act;
    test.deadline_ns = request->deadline_ns;
    return begin(is_companion ? 'c' : 'a', answer_agent, (void **)ret_call, userdata);
}

struct agent_call *agent_call_free(struct agent_call *call)
{
    return end(call);
}

enum agent_outcome agent_outcome_from_status(int status, const char *message)
{
    (void)status;
    (void)message;
    return AGENT_FAILED;
}

static void answer_shim(struct loop_timer *timer)
{
    struct shim_call *call = test.call;
    struct agent_reply reply = scripted(&test.script[test.position - 1]);

    (void)timer;
    call->done(call, &reply, test.userdata);
}

int shim_call_new(struct loop *loop, const struct shim_request *request, shim_done *done,
                  void *userdata, struct shim_call **ret_call)
{
    (void)loop;
    assert_string_equal(request->volume, "/dev/sdx");
    assert_int_equal(request->listener.vmm, VMM);
    CALL_NEW(ret_call, done);
    test.act = request->act;
    return begin('s', answer_shim, (void **)ret_call, userdata);
}

struct shim_call *shim_call_free(struct shim_call *call)
{
    return end(call);
}

static void answer_url(struct loop_timer *timer)
{
    struct http_exchange *exchange = test.call;
    struct http_exchange_answer answer = {
        .end = test.url ? HTTP_EXCHANGE_ANSWERED : HTTP_EXCHANGE_NO_SOCKET,
        .status = test.url_status,
        .body = test.url,
        .length = test.url ? strlen(test.url) : 0,
    };

    (void)timer;
    (void)error_set(&answer.error, 0, "no socket");
    exchange->done(exchange, &answer, test.userdata);
}

int http_exchange_new(struct loop *loop, const struct http_exchange_request *request,
                      http_exchange_done *done, void *userdata, struct http_exchange **ret_exchange)
{
    (void)loop;
    assert_string_equal(request->target, "/agent-url");
    assert_int_equal(request->listener.vmm, VMM);
    CALL_NEW(ret_exchange, done);
    return begin('u', answer_url, (void **)ret_exchange, userdata);
}

struct http_exchange *http_exchange_free(struct http_exchange *exchange)
{
    return end(exchange);
}

static bool helper_is_possible(void *owner)
{
    (void)owner;
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

    (void)timer;
    (void)error_set(&reply.error, 0, "helper");
    (void)end(call);
    done(&reply, test.userdata);
}

static int helper_begin(void *owner, uint64_t deadline_ns, guest_helper_done *done, void *userdata,
                        struct helper_call **ret_call)
{
    (void)owner;
    test.deadline_ns = deadline_ns;
    CALL_NEW(ret_call, done);
    return begin('h', answer_helper, (void **)ret_call, userdata);
}

static struct helper_call *helper_free(struct helper_call *call)
{
    return end(call);
}

static const struct guest_helper_ops helper = {
    .is_possible = helper_is_possible,
    .begin = helper_begin,
    .free = helper_free,
};

/* ---- one walk ---- */

static void on_done(struct guest_call *call, const struct guest_reply *reply, void *userdata)
{
    (void)userdata;
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

    (void)state;
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
    (void)state;
    fd_close(test.listener);
    fd_close(test.root);
    loop_done(&test.loop);
    return scratch_directory_remove(test.directory);
}

/* ---- tests ---- */

static void the_first_route_that_grows_ends_it(void **state)
{
    const struct guest_request request = request_of(true);
    const struct guest_reply *reply =
        WALK(&request, {.route = 'c', .outcome = AGENT_UNSUPPORTED},
             {.route = 'a', .outcome = AGENT_DONE, .has_bytes = true});

    (void)state;
    assert_int_equal(reply->reason, REASON_NONE);
    assert_int_equal(reply->stats.total, 7);
    assert_string_equal(reply->ability[ROUTE_COMPANION], "agent_unsupported");
    assert_string_equal(reply->ability[ROUTE_AGENT], "able");
    assert_null(reply->ability[ROUTE_SHIM]);
    assert_int_equal(test.act, AGENT_RESIZE_AND_STATS);
}

static void a_resize_without_a_size_is_unverified(void **state)
{
    const struct guest_request request = request_of(true);

    (void)state;
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_FAILED})->reason,
                     REASON_UNVERIFIED);
    assert_int_equal(WALK(&request, {.route = 'c'})->reason, REASON_UNVERIFIED);
    assert_false(test.reply.stats.has_bytes);
}

static void a_connection_for_one_request_is_followed_by_another(void **state)
{
    const struct guest_request request = request_of(true);

    (void)state;
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_UNREACHABLE},
                          {.route = 'c', .has_bytes = true})
                         ->reason,
                     REASON_NONE);
    assert_int_equal(test.act, AGENT_STATS);
    assert_int_equal(test.reply.stats.total, 7);
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_UNREACHABLE},
                          {.route = 'c', .outcome = AGENT_FAILED})
                         ->reason,
                     REASON_UNVERIFIED);
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_UNREACHABLE},
                          {.route = 'c', .refused = -ENOMEM})
                         ->reason,
                     REASON_UNVERIFIED);
    assert_string_equal(test.reply.ability[ROUTE_COMPANION], "able");
}

/* After crust-guest-agent. */
#define NO_OTHER_CAN                                                                               \
    {.route = 'a', .outcome = AGENT_UNSUPPORTED}, {.route = 's', .outcome = AGENT_UNSUPPORTED},    \
    {                                                                                              \
        .route = 'h', .reason = REASON_HELPER_MISSING                                              \
    }

static void a_file_system_is_no_larger_than_its_device(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
    request.most_bytes = 7;
    assert_int_equal(WALK(&request, {.route = 'c', .has_bytes = true})->reason, REASON_NONE);
    request.most_bytes = 6;
    assert_int_equal(WALK(&request, {.route = 'c', .has_bytes = true}, NO_OTHER_CAN)->reason,
                     REASON_AGENT_FAILED);
    assert_string_equal(test.reply.error.text,
                        "the guest says that the file system has 7 bytes, and its device has 6");
    assert_false(test.reply.stats.has_bytes);
    assert_int_equal(WALK(&request, {.route = 'c', .stats_outcome = AGENT_UNREACHABLE},
                          {.route = 'c', .has_bytes = true}, NO_OTHER_CAN)
                         ->reason,
                     REASON_AGENT_FAILED);
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_UNSUPPORTED},
                          {.route = 'a', .outcome = AGENT_UNSUPPORTED},
                          {.route = 's', .outcome = AGENT_UNSUPPORTED},
                          {.route = 'h', .has_bytes = true})
                         ->reason,
                     REASON_AGENT_FAILED);
}

static void a_count_that_is_larger_than_the_device_leads_on(void **state)
{
    struct guest_request request = request_of(false);

    (void)state;
    request.most_bytes = 6;
    assert_int_equal(WALK(&request, {.route = 'c', .has_bytes = true},
                          {.route = 'a', .has_bytes = true}, {.route = 's', .has_bytes = true},
                          {.route = 'h', .has_bytes = true})
                         ->reason,
                     REASON_AGENT_FAILED);
    assert_false(test.reply.stats.has_bytes);
}

static void a_route_that_fails_takes_no_other_away(void **state)
{
    const struct guest_request request = request_of(true);

    (void)state;
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

    (void)state;
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

    (void)state;
    assert_int_equal(reply->reason, REASON_NONE);
    assert_int_equal(reply->stats.total, 9);
    assert_int_equal(reply->age_ns, 5);
    assert_null(reply->ability[ROUTE_COMPANION]);
    assert_int_equal(test.act, AGENT_STATS);
}

static void a_count_on_any_route_is_the_answer(void **state)
{
    const struct guest_request request = request_of(false);

    (void)state;
    assert_int_equal(WALK(&request, {.route = 'c', .outcome = AGENT_UNSUPPORTED},
                          {.route = 'a', .outcome = AGENT_DENIED}, {.route = 's'})
                         ->reason,
                     REASON_NONE);
    assert_false(test.reply.stats.has_bytes);
}

static void helper_resizes_or_reports_a_reason(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
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

static void time_is_left_for_the_routes_after_it(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
    (void)WALK(&request, {.route = 'c', .outcome = AGENT_LAYER});
    assert_in_range(test.deadline_ns, 19 * NSEC_PER_SEC, 20 * NSEC_PER_SEC + 1);
    request.ends_at = 1;
    (void)WALK(&request, {.route = 'c', .outcome = AGENT_LAYER});
    assert_int_equal(test.deadline_ns, 1);
}

static void a_call_that_cannot_be_made_leads_on(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
    request.order[1] = ROUTE_NONE;
    request.order[2] = ROUTE_NONE;
    request.order[3] = ROUTE_NONE;
    assert_int_equal(WALK(&request, {.route = 'c', .refused = -ENOMEM})->reason,
                     REASON_AGENT_UNREACHABLE);
    assert_non_null(strstr(test.reply.error.text, "cannot call the agent"));
}

static void no_route_is_reported_from_the_loop(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
    memset(request.order, 0, sizeof(request.order));
    assert_int_equal(walk(&request, NULL, 0)->reason, REASON_AGENT_UNREACHABLE);
    request.guest_path = "pci:02/01";
    assert_int_equal(walk(&request, NULL, 0)->reason, REASON_GUEST_PATH_UNKNOWN);
}

static void agent_address_is_learned_from_the_shim(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
    request.asks_address = true;
    address[0] = '\0';
    test.url = "vsock://3:1024\n";
    test.url_status = 200;
    assert_int_equal(WALK(&request, {.route = 'u'}, {.route = 'c', .has_bytes = true})->reason,
                     REASON_NONE);
    assert_true(test.reply.address_learned);
    assert_string_equal(address, "vsock://3:1024");
}

static void shim_without_an_address_is_reported_if_no_route_is_left(void **state)
{
    struct guest_request request = request_of(true);

    (void)state;
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
}

static void a_walk_may_be_ended_at_any_step(void **state)
{
    static const struct step script[] = {
        {.route = 'u'}, {.route = 'c'}, {.route = 's'}, {.route = 'h'}};
    static const enum guest_route route[] = {ROUTE_NONE, ROUTE_COMPANION, ROUTE_SHIM, ROUTE_HELPER};
    struct guest_request request = request_of(true);
    struct guest_call *call;

    (void)state;
    test.dones = 0;
    for (unsigned i = 0; i < array_length(script); i++) {
        request = request_of(true);
        memset(request.order, 0, sizeof(request.order));
        request.order[0] = route[i];
        request.asks_address = i == 0;
        if (i == 0)
            address[0] = '\0';
        test.script = &script[i];
        test.steps = 1;
        test.position = 0;
        assert_int_equal(guest_call_new(&test.loop, &request, on_done, NULL, &call), 0);
        assert_int_equal(test.alive, 1);
        assert_null(guest_call_free(call));
        assert_int_equal(test.alive, 0);
    }
    test.position = 0;
    test.script = &(const struct step){.route = 'u', .refused = -ENOMEM};
    address[0] = '\0';
    request.asks_address = true;
    assert_int_equal(guest_call_new(&test.loop, &request, on_done, NULL, &call), -ENOMEM);
    assert_int_equal(test.dones, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_route_that_grows_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resize_without_a_size_is_unverified, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_for_one_request_is_followed_by_another, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_file_system_is_no_larger_than_its_device, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_count_that_is_larger_than_the_device_leads_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_route_that_fails_takes_no_other_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_without_a_word_leads_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counting_asks_on_whatever_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_count_on_any_route_is_the_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(helper_resizes_or_reports_a_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(time_is_left_for_the_routes_after_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_call_that_cannot_be_made_leads_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_route_is_reported_from_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(agent_address_is_learned_from_the_shim, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shim_without_an_address_is_reported_if_no_route_is_left,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_walk_may_be_ended_at_any_step, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
