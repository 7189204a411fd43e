/* SPDX-License-Identifier: Apache-2.0 */
/* guest_agent.c - crust-guest-agent: options, signals, and what runs on the loop.
 *
 * It serves, grows without being asked, or both; or it grows once and exits (oneshot.h). Without an
 * option it serves on the companion's port, where crustd expects it.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/guest_drive.h"
#include "guest-agent/guest_serve.h"
#include "guest-agent/oneshot.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"

#define IDLE_NS (60 * NSEC_PER_SEC) /* of a connection, until it ends */

enum { LISTENERS = 4, EXIT_INCOMPLETE = 1, EXIT_USAGE = 2, SECONDS_MAX = 3600 };

#define FLUSH_DEFAULT UINT64_MAX
#define FLUSH_NS      (5 * NSEC_PER_SEC)

static const char default_address[] = "vsock://1030"; /* agent.companion_port of crustd.conf */

struct options {
    const char *listen[LISTENERS];
    size_t listen_count;
    int automatic, once, report, all; /* bool, as getopt_long(3) sets them */
    uint64_t flush_ns;                /* 0: never; FLUSH_DEFAULT: not said */
    const char *drive;                /* the call of --drive; NULL */
    struct oneshot_request request;
};

static const char help[] =
    "usage: crust-guest-agent [--listen ADDRESS]... [--flush SECONDS] [--auto]\n"
    "       crust-guest-agent --once [--report] [--timeout SECONDS] PATH...|--all\n"
    "       crust-guest-agent --drive CALL [--flush SECONDS]\n"
    "\n"
    "Grows the file systems of a virtual machine's volumes, mounts and unmounts its drives.\n"
    "\n"
    "  --listen ADDRESS   serve ResizeVolume, GetVolumeStats and the calls for drives there (up "
    "to\n"
    "                     4 times): vsock://PORT, unix:///PATH or serial:///dev/NAME\n"
    "  --flush SECONDS    sync the drives that are mounted this often (0 to 3600; 0: never; 5)\n"
    "  --auto             grow every mounted file system when its device grows\n"
    "  --once             grow the file systems mounted at these paths (up to 64) to the size of\n"
    "                     their devices, print one line of JSON, exit\n"
    "  --report           with --once: change nothing, only print\n"
    "  --timeout SECONDS  with --once: report as timed_out what takes longer (1 to 3600)\n"
    "  --drive CALL       for crustd itself: make one call about a drive, print the answer\n"
    "  --all              with --once: every writable ext4, xfs and btrfs, in place of paths\n"
    "  --version          print the version\n"
    "  --help             print this\n"
    "\n"
    "Without an option it listens on vsock://1030. ext4 needs CAP_SYS_RESOURCE; xfs, btrfs "
    "and\n"
    "drives need CAP_SYS_ADMIN, in the guest's initial user namespace.\n"
    "\n"
    "Exit codes of --once: 0 all is done, 1 a path has an error in the JSON, 2 nothing could be "
    "done.\n";

static bool parse_seconds(const char *text, unsigned long least, uint64_t *ret_ns)
{
    char *end;
    unsigned long seconds = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end || seconds < least || seconds > SECONDS_MAX)
        return false;
    *ret_ns = seconds * NSEC_PER_SEC;
    return true;
}

/* Whether the options fit together, and the paths are valid. */
static bool check_options(struct options *options)
{
    const struct oneshot_request *request = &options->request;
    bool grows = request->count || request->all || request->report_only || request->timeout_ns;

    if (options->drive)
        return !options->once && !options->listen_count && !options->automatic && !grows;
    if (!options->once) {
        if (!options->automatic && !options->listen_count)
            options->listen[options->listen_count++] = default_address;
        return !grows && (options->flush_ns == FLUSH_DEFAULT || options->listen_count > 0);
    }
    if (options->listen_count || options->automatic || options->flush_ns != FLUSH_DEFAULT ||
        request->count > ONESHOT_PATHS || request->all == (request->count > 0))
        return false;
    for (size_t i = 0; i < request->count; i++) {
        const char *path = request->paths[i];
        bool is_disk = strncmp(path, "pci:", 4) == 0 || strncmp(path, "scsi:", 5) == 0;

        if ((path[0] != '/' && !is_disk) || strlen(path) >= ONESHOT_PATH_BYTES)
            return false;
    }
    return true;
}

/* Outcomes of reading the options. */
enum { OPTIONS_RUN, OPTIONS_SHOWN, OPTIONS_BAD };

enum { SET, LISTEN = 256, FLUSH, DRIVE, TIMEOUT, VERSION, HELP };

static int parse_options(int argc, char **argv, struct options *options)
{
    const struct option known[] = {
        {"listen", required_argument, NULL, LISTEN},
        {"auto", no_argument, &options->automatic, true},
        {"flush", required_argument, NULL, FLUSH},
        {"once", no_argument, &options->once, true},
        {"drive", required_argument, NULL, DRIVE},
        {"report", no_argument, &options->report, true},
        {"timeout", required_argument, NULL, TIMEOUT},
        {"all", no_argument, &options->all, true},
        {"version", no_argument, NULL, VERSION},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    bool is_good = true;
    int option;

    while (is_good && (option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case SET:
            break;
        case LISTEN:
            is_good = options->listen_count < LISTENERS;
            if (is_good)
                options->listen[options->listen_count++] = optarg;
            break;
        case FLUSH:
            is_good = parse_seconds(optarg, 0, &options->flush_ns);
            break;
        case DRIVE:
            options->drive = optarg;
            break;
        case TIMEOUT:
            is_good = parse_seconds(optarg, 1, &options->request.timeout_ns);
            break;
        case VERSION:
            return puts("crust-guest-agent " CRUST_VERSION) < 0 ? OPTIONS_BAD : OPTIONS_SHOWN;
        case HELP:
            return fputs(help, stdout) < 0 ? OPTIONS_BAD : OPTIONS_SHOWN;
        default:
            is_good = false;
        }
    }
    options->request.report_only = options->report;
    options->request.all = options->all;
    options->request.paths = (const char *const *)&argv[optind];
    options->request.count = (size_t)(argc - optind);
    return is_good && check_options(options) ? OPTIONS_RUN : OPTIONS_BAD;
}

static void on_stop(struct loop_signal *signal)
{
    loop_stop(signal->loop);
}

static int run(const struct options *options)
{
    struct server *servers[LISTENERS] = {0};
    struct loop_signal terminated = {0}, interrupted = {0};
    struct loop loop;
    struct error error;
    int status = EXIT_FAILURE, r = 0;

    if (loop_init(&loop) < 0)
        return EXIT_FAILURE;
    loop_signal_start(&loop, &terminated, SIGTERM, on_stop);
    loop_signal_start(&loop, &interrupted, SIGINT, on_stop);
    for (size_t i = 0; r == 0 && i < options->listen_count; i++) {
        r = server_new(&loop, options->listen[i], IDLE_NS, &servers[i], &error);
        if (r == 0)
            log_info(NULL, "listening on %s", options->listen[i]);
        else
            log_error(NULL, "%s", error.text);
    }
    if (r == SERVER_NO_ADDRESS)
        status = EXIT_USAGE;
    if (r == 0) {
        if (options->automatic)
            automatic_start(&loop);
        if (options->listen_count)
            drive_flush_start(&loop, options->flush_ns);
        loop_run(&loop);
        status = EXIT_SUCCESS;
    }
    for (size_t i = 0; i < LISTENERS; i++)
        (void)server_free(servers[i]);
    drive_flush_end();
    tasks_free();
    loop_signal_stop(&terminated);
    loop_signal_stop(&interrupted);
    loop_done(&loop);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.flush_ns = FLUSH_DEFAULT};
    struct error error = {.text = "no such call, try --help"};
    int outcome;

    switch (parse_options(argc, argv, &options)) {
    case OPTIONS_SHOWN:
        return EXIT_SUCCESS;
    case OPTIONS_BAD:
        (void)fputs("crust-guest-agent: bad options, try --help\n", stderr);
        return EXIT_USAGE;
    default:
        break;
    }
    log_configure(LOG_INFO, LOG_LOGFMT);
    (void)signal(SIGPIPE, SIG_IGN); /* a serial port is written by write(2) */
    if (options.flush_ns == FLUSH_DEFAULT)
        options.flush_ns = FLUSH_NS;
    if (!options.once && !options.drive)
        return run(&options);
    outcome = options.once ? oneshot_run(&options.request, STDOUT_FILENO, &error)
                           : drive_once_run(options.drive, options.flush_ns, STDOUT_FILENO, &error);
    if (outcome == EXIT_SUCCESS || outcome == EXIT_INCOMPLETE)
        return outcome;
    (void)fprintf(stderr, "crust-guest-agent: %s\n", error.text);
    return EXIT_USAGE;
}
