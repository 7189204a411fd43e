/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - crustd: the wiring of watchers, core and servers, and what signals do.
 *
 * Nothing is decided here. The order of starting matters: the watchers run before the first
 * scan, so that what happens during it is not missed.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "api/server.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/notify.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/workers.h"
#include "reconciler/core/database.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/main.h"
#include "store/read.h"
#include "store/store.h"

enum { PAUSES = 50, PAUSE_NS = 10 * NSEC_PER_MSEC }; /* for the lock of the instance */

struct daemon {
    struct arguments arguments;
    struct config config;
    struct config started; /* with this: it holds for keys that need a restart */
    int root;
    struct instance instance;
    struct loop loop;
    struct notify notify;
    struct store *store;
    bool in_memory; /* the store, from the beginning */
    struct error why_in_memory;
    struct reconciler *reconciler;
    struct operations operations; /* of both servers */
    struct http_server *http;
    struct grpc_server *grpc;
    struct loop_signal terminate, interrupt, hangup;
    bool ready;   /* the service manager knows */
    bool trimmed; /* what the first scan and its decisions no longer need was given back */
    bool stopping;
    struct restart restart;
    bool restarts; /* once the loop has ended */
    struct loop_timer restarting;
    int failure; /* of the database's file, which is why */
    char why[ERROR_TEXT_BYTES];
    int exit_code;
};

static void tell_status(void *userdata)
{
    struct daemon *daemon = userdata;
    const struct reconciler_findings *findings;
    struct reconciler_health health;
    char text[NOTIFY_STATUS_BYTES];

    if (daemon->notify.fd < 0)
        return;
    reconciler_get_health(daemon->reconciler, &health);
    findings = reconciler_get_findings(daemon->reconciler);
    if (daemon->stopping)
        snprintf(text, sizeof(text), "stopping after the step in flight");
    else if (health.degraded)
        snprintf(text, sizeof(text), "degraded: %.140s", health.problem);
    else if (findings->errors > 0)
        snprintf(text, sizeof(text), "up; errors of crustctl doctor: %u, %.100s", findings->errors,
                 findings->worst);
    else
        snprintf(text, sizeof(text), "%s", health.synced ? "up" : "the first scan is under way");
    (void)notify_status(&daemon->notify, text);
}

static void on_synced(void *userdata)
{
    struct daemon *daemon = userdata;
    int r = notify_ready(&daemon->notify);

    daemon->ready = true;
    if (r < 0)
        log_warning(NULL, "cannot notify the service manager: %s", strerror(-r));
    tell_status(daemon);
}

static void reload(struct daemon *daemon)
{
    const struct arguments *arguments = &daemon->arguments;
    struct config next;
    struct error error;
    char restart[512];

    if (config_load(daemon->root, arguments->root, arguments->config, &next, &error) < 0) {
        log_error(NULL, "the configuration stays as it was: %s", error.text);
        return;
    }
    config_needs_restart(&daemon->started, &next, restart, sizeof(restart));
    if (restart[0])
        log_warning(NULL, "changed keys that need a restart: %s", restart);
    reconciler_configure(daemon->reconciler, &next);
    daemon->config = next;
    log_info(NULL, "the configuration was read again");
}

static void on_hangup(struct loop_signal *signal)
{
    struct daemon *daemon = container_of(signal, struct daemon, hangup);

    if (daemon->ready)
        (void)notify_reloading(&daemon->notify);
    reload(daemon);
    if (daemon->ready)
        (void)notify_ready(&daemon->notify);
}

static void on_terminate(struct loop_signal *signal)
{
    struct daemon *daemon = container_of(signal, struct daemon, terminate);

    if (daemon->stopping)
        loop_stop(&daemon->loop);
    daemon->stopping = true;
    log_info(NULL, "stopping after the step in flight");
    (void)notify_stopping(&daemon->notify);
    tell_status(daemon);
    if (daemon->grpc)
        grpc_server_shut_down(daemon->grpc);
    reconciler_stop(daemon->reconciler);
}

static void on_interrupt(struct loop_signal *signal)
{
    struct daemon *daemon = container_of(signal, struct daemon, interrupt);

    on_terminate(&daemon->terminate);
}

static void on_restarting(struct loop_timer *timer)
{
    struct daemon *daemon = container_of(timer, struct daemon, restarting);

    if (daemon->stopping) {
        restart_hold_signals(false);
        return;
    }
    daemon->restarts = true;
    loop_stop(&daemon->loop);
}

/* A signal that was caught before is served first. Each pass until then fails and asks again: a
 * timer that is started anew in the turn of the loop in which it would fire never fires. */
static void on_restart(void *userdata, int failure, const char *why)
{
    struct daemon *daemon = userdata;

    if (loop_timer_is_active(&daemon->restarting))
        return;
    restart_hold_signals(true);
    daemon->failure = failure;
    (void)snprintf(daemon->why, sizeof(daemon->why), "%s", why);
    loop_timer_start(&daemon->loop, &daemon->restarting, 0, on_restarting);
}

/* Nothing is left to do now: that ends --once and a stop. */
static void on_settled(void *userdata)
{
    struct daemon *daemon = userdata;
    struct reconciler_health health;

    if (daemon->stopping || daemon->arguments.once) {
        reconciler_get_health(daemon->reconciler, &health);
        if (health.database_fails && !daemon->stopping)
            daemon->exit_code = EXIT_FAILED;
        loop_stop(&daemon->loop);
    } else {
        tell_status(daemon);
        if (daemon->ready && !daemon->trimmed)
            (void)malloc_trim(0);
        daemon->trimmed = daemon->ready;
    }
}

static void print_summary(struct daemon *daemon)
{
    struct buffer json = BUFFER_INIT(64 * 1024);
    struct error error = {0};
    int r = store_read_summary(store_get_reader(daemon->store), &json, &error);

    if (r < 0)
        log_error(NULL, "no summary: %s", error.text);
    if (r < 0 || printf("%s\n", buffer_text(&json)) < 0 || fflush(stdout) != 0)
        daemon->exit_code = EXIT_FAILED;
    buffer_done(&json);
}

/* One line: why, and what to do. */
static int fail(struct daemon *daemon, enum start_step step, int result, const struct error *error)
{
    log_error(NULL, "%s; %s", error->text, start_failure_remedy(step, result));
    daemon->exit_code = start_failure_exit_code(step, result);
    return -1;
}

/* What only a person can put right. Anything else may heal, and until then there is memory. */
static bool is_refused(int r)
{
    return r > 0 || r == STORE_IN_THE_WAY || r == STORE_FAULT || r == STORE_NO_MEMORY;
}

static void say_opening(const struct daemon *daemon, const struct store_opening *opening)
{
    const struct schema_upgrade *upgrade = &opening->upgrade;

    if (opening->rebuilt)
        log_warning(NULL, "the database was corrupt: it was set aside and begun anew (%s)",
                    daemon->instance.database);
    if (upgrade->upgraded)
        log_info(NULL,
                 "the database was upgraded from minor version %" PRId64 ": secrets redacted in "
                 "%" PRIu64 " rows",
                 upgrade->from_minor, upgrade->redacted);
    if (upgrade->upgraded && opening->set_aside)
        log_warning(
            NULL,
            "%s.corrupt-N were set aside by an earlier release and may hold secrets: delete "
            "them when you no longer need them",
            daemon->instance.database);
}

/* INSTANCE_LOCKED, or as store_open(). */
static int open_file(struct daemon *daemon, struct error *error)
{
    const struct timespec pause_time = {.tv_nsec = PAUSE_NS};
    struct store_opening opening = {0};
    int r = instance_take_place(&daemon->instance, error);

    /* A process that a killed crustd had just begun has copies of its descriptors, and so the lock,
     * until it runs. */
    for (unsigned i = 0; i < PAUSES && r == INSTANCE_LOCKED; i++) {
        (void)nanosleep(&pause_time, NULL);
        r = instance_take_place(&daemon->instance, error);
    }
    if (r != INSTANCE_ALONE)
        return r;
    r = instance_open_store(&daemon->instance, &daemon->config, INSTANCE_STORE_FILE, NULL,
                            &daemon->store, &opening, error);
    say_opening(daemon, &opening);
    return r;
}

/* A failure is believed the second time. A daemon that executed itself anew works in memory
 * whatever is wrong with the file: its volumes do not wait for a person. */
static int open_store(struct daemon *daemon)
{
    const bool is_anew = daemon->restart.at_ns != 0;
    struct error *error = &daemon->why_in_memory;
    struct store_opening opening;
    int r;

    instance_init(&daemon->instance, daemon->root, daemon->arguments.root, &daemon->config);
    if (daemon->restart.in_memory) {
        (void)instance_take_place(&daemon->instance, error);
        r = error_set(error, STORE_UNREADABLE, "it failed again soon after it was reopened");
    } else {
        r = open_file(daemon, error);
    }
    if (r < 0 && !is_anew && !is_refused(r))
        r = open_file(daemon, error);
    if (r == STORE_OPENED)
        return 0;
    if (is_refused(r) && !is_anew)
        return fail(daemon, START_DATABASE, r, error);
    daemon->in_memory = true;
    r = instance_open_store(&daemon->instance, &daemon->config, INSTANCE_STORE_MEMORY, NULL,
                            &daemon->store, &opening, &(struct error){0});
    return r == STORE_OPENED ? 0 : fail(daemon, START_DATABASE, r, error);
}

static int start_core(struct daemon *daemon, struct error *error)
{
    const struct reconciler_options options = {
        .loop = &daemon->loop,
        .store = daemon->store,
        .instance = &daemon->instance,
        .why_in_memory = daemon->in_memory ? &daemon->why_in_memory : NULL,
        .config = &daemon->config,
        .root = daemon->root,
        /* --once prints its summary there. */
        .journal_output = daemon->arguments.once ? 0 : STDOUT_FILENO,
        .node = daemon->arguments.node,
        .tells_kubernetes = !daemon->arguments.once,
        .synced = on_synced,
        .swept = tell_status,
        .settled = on_settled,
        .restart = on_restart,
        .userdata = daemon,
    };

    return reconciler_new(&options, &daemon->reconciler, error);
}

static int start_servers(struct daemon *daemon, struct error *error)
{
    const struct config_list *hosts = &daemon->config.http.hosts;
    struct http_server_options http = {
        .root = daemon->root,
        .socket_path = daemon->config.paths.http_socket,
        .socket_group = daemon->config.paths.socket_group,
        .listen = daemon->config.http.listen,
        .metrics_listen = daemon->config.metrics.listen,
        .operations = &daemon->operations,
    };
    const struct grpc_server_options grpc = {
        .root = daemon->root,
        .socket_path = daemon->config.paths.grpc_socket,
        .socket_group = daemon->config.paths.socket_group,
        .operations = &daemon->operations,
    };
    int r;

    if (daemon->arguments.once)
        return 0;
    for (unsigned i = 0; i < hosts->count; i++)
        http_hosts_add(&http.hosts, config_list_item(hosts, i));
    r = http_server_new(&daemon->loop, daemon->reconciler, &http, &daemon->http, error);
    if (r == 0)
        r = grpc_server_new(&daemon->loop, daemon->reconciler, &grpc, &daemon->grpc, error);
    return r;
}

/* Each VMM takes a descriptor, and the usual 1,024 are few. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warning(NULL, "cannot have more open files: %s", strerror(errno));
}

/* Rows are the memory: whoever starts crustd anew goes on with them. */
static void on_workers_lost(void *userdata)
{
    struct daemon *daemon = userdata;

    log_error(NULL,
              "the process that makes crustd's workers has died: crustd ends, to be started anew");
    daemon->exit_code = EXIT_FAILED;
    loop_stop(&daemon->loop);
}

/* What the administrator named is entered wherever it lies, and so is the directory of devices. */
static int start_guard(const struct daemon *daemon)
{
    const struct config *config = &daemon->config;
    const char *paths[12 + 2 * CONFIG_LIST_ITEMS] = {
        "/dev",
        config->paths.kata_volumes,
        config->paths.crust_volumes,
        config->paths.kata_go_sandboxes,
        config->paths.kata_go_vms,
        config->paths.kata_rs_sandboxes,
        config->paths.sysfs,
        config->paths.database,
        config->paths.grpc_socket,
        config->paths.http_socket,
        config->paths.kata_trash,
        config->paths.crust_trash,
    };
    size_t count = 12;

    for (unsigned i = 0; i < config->paths.bundles.count; i++)
        paths[count++] = config_list_item(&config->paths.bundles, i);
    for (unsigned i = 0; i < config->paths.kubelet.count; i++)
        paths[count++] = config_list_item(&config->paths.kubelet, i);
    return path_guard_start(daemon->root, paths, count);
}

static int start(struct daemon *daemon)
{
    struct error error = {0};
    int r;

    r = workers_fork_nursery(); /* before anything is opened that workers must not have */
    if (r == 0)
        r = process_reader_start();
    if (r == 0)
        r = loop_init(&daemon->loop);
    if (r < 0) {
        error_set_errno(&error, r, "cannot make the event loop and its worker processes");
        return fail(daemon, START_OTHER, r, &error);
    }
    workers_start(&daemon->loop, on_workers_lost, daemon);
    r = start_guard(daemon);
    if (r < 0) {
        error_set_errno(&error, r, "cannot read the mount table");
        return fail(daemon, START_OTHER, r, &error);
    }
    raise_descriptor_limit();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a full disk is an error, not the end */
    loop_signal_start(&daemon->loop, &daemon->terminate, SIGTERM, on_terminate);
    loop_signal_start(&daemon->loop, &daemon->interrupt, SIGINT, on_interrupt);
    loop_signal_start(&daemon->loop, &daemon->hangup, SIGHUP, on_hangup);
    restart_hold_signals(false);
    if (!daemon->arguments.once && notify_init(&daemon->notify, &daemon->loop, &error) < 0)
        log_warning(NULL, "cannot notify the service manager: %s", error.text); /* and works */
    if (open_store(daemon) < 0)
        return -1;
    r = start_core(daemon, &error);
    if (r == 0)
        r = reconciler_watch(daemon->reconciler, &error);
    if (r < 0)
        return fail(daemon, START_OTHER, r, &error);
    r = start_servers(daemon, &error);
    if (r < 0)
        return fail(daemon, START_SERVING, r, &error);
    if (daemon->arguments.once)
        reconciler_retry_everything(
            daemon->reconciler); /* --once asks for an attempt now, not at the next retry */
    reconciler_start(daemon->reconciler);
    log_info(NULL, "crustd " CRUST_VERSION " is up, root %s, database %s", daemon->arguments.root,
             daemon->config.paths.database);
    return 0;
}

/* A file that fails is closed as it is, and opened once before the restart: if it is not the one
 * that was used until now, its journal says so. */
static void close_store(struct daemon *daemon, bool in_memory)
{
    const struct store_gap gap = {
        .since_ms = clock_realtime_ms(),
        .reason = daemon->why,
        .is_certain = daemon->failure == STORE_MISSING || daemon->failure == STORE_REPLACED,
    };
    const bool failed = daemon->restarts && daemon->failure < 0;
    struct error error;

    if (failed)
        store_keep_wal(daemon->store);
    store_close(daemon->store);
    if (failed && !in_memory)
        (void)instance_try_store(&daemon->instance, &daemon->config, &gap, &error);
}

static void end(struct daemon *daemon, bool in_memory)
{
    grpc_server_free(daemon->grpc);
    http_server_free(daemon->http);
    operations_done(&daemon->operations);
    reconciler_free(daemon->reconciler);
    workers_stop();
    close_store(daemon, in_memory);
    notify_done(&daemon->notify);
    if (daemon->loop.ev) {
        loop_signal_stop(&daemon->terminate);
        loop_signal_stop(&daemon->interrupt);
        loop_signal_stop(&daemon->hangup);
        loop_timer_stop(&daemon->restarting);
        loop_done(&daemon->loop);
    }
    instance_done(&daemon->instance);
    path_guard_stop();
    process_reader_stop();
    fd_close(daemon->root);
}

int main(int argc, char **argv)
{
    static struct daemon daemon = {.root = -1, .instance = INSTANCE_INIT, .notify = NOTIFY_INIT};
    struct error error = {0};
    int r;

    (void)signal(SIGHUP, SIG_IGN);  /* until there is something to read again */
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would free the numbers of ended children */
    r = restart_init(&daemon.restart, argv);
    if (r < 0) {
        fprintf(stderr, "crustd: out of memory\n");
        return EXIT_FAILED;
    }
    r = arguments_parse(argc, argv, &daemon.arguments);
    if (r >= 0)
        return r;
    log_configure(daemon.arguments.log_level, daemon.arguments.log_format);
    log_set_node(daemon.arguments.node);
    r = path_open_root(daemon.arguments.root, &daemon.root);
    if (r < 0) {
        fprintf(stderr, "%scrustd: cannot open --root %s: %s\n", log_priority(LOG_ERROR),
                daemon.arguments.root, strerror(-r));
        return EXIT_USAGE;
    }
    r = config_load(daemon.root, daemon.arguments.root, daemon.arguments.config, &daemon.config,
                    &error);
    if (r < 0) {
        fprintf(stderr, "%scrustd: %s; %s\n", log_priority(LOG_ERROR), error.text,
                start_failure_remedy(START_CONFIG, r));
        return start_failure_exit_code(START_CONFIG, r);
    }
    daemon.started = daemon.config;
    if (daemon.arguments.check_config && *log_priority(LOG_INFO)) {
        log_info(NULL, "the configuration has no fault"); /* the journal is no place for all keys */
        return 0;
    }
    if (daemon.arguments.check_config)
        return config_print(&daemon.config, stdout) < 0 ? EXIT_FAILED : 0;
    if (start(&daemon) == 0) {
        loop_run(&daemon.loop);
        if (daemon.restarts) {
            const bool in_memory = daemon.failure < 0 && restart_is_recent(&daemon.restart);

            log_info(NULL, "crustd executes itself anew");
            end(&daemon, in_memory);
            r = restart_execute(&daemon.restart, in_memory);
            log_error(NULL, "crustd cannot execute itself anew: %s", strerror(-r));
            return EXIT_FAILED; /* that tells whoever starts this process anew */
        }
        if (daemon.arguments.once && !daemon.stopping)
            print_summary(&daemon);
        log_info(NULL, "crustd stops");
    }
    end(&daemon, false);
    return daemon.exit_code;
}
