/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c - crustd's command line: what it takes is said in `usage`. */
#include "reconciler/main.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/config.h"
#include "reconciler/core/database.h"

static const char usage[] =
    "Usage: crustd [OPTION]...\n"
    "Watches the metadata of direct-assigned volumes and resizes them in their micro-VMs.\n"
    "\n"
    "  --config FILE         configuration (default $" CONFIG_FILE_VARIABLE ", or\n"
    "                        " CONFIG_DEFAULT_FILE " below --root)\n"
    "  --root DIR            put every host path below DIR (default $" CONFIG_ROOT_VARIABLE ")\n"
    "  --check-config        print the effective configuration and exit\n"
    "  --once                scan, do what is due, print a summary as JSON and exit\n"
    "  --log-level LEVEL     error, warning, info (default) or debug\n"
    "  --log-format FORMAT   logfmt (default) or json\n"
    "  --version, --help\n"
    "\n"
    "Every line of the log names the node: NODE_NAME from the environment, else the host name.\n"
    "Signals: TERM and INT stop after the action in flight, HUP reloads the configuration.\n"
    "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 another instance is running, 4 the\n"
    "database has a newer major version, belongs to another application, or is not a file.\n";

/* Empty counts as not there: a pod's manifest may leave it so. */
static const char *node_name(void)
{
    static char host[HOST_NAME_MAX + 1];
    const char *name = getenv("NODE_NAME");

    if (name && *name)
        return name;
    return gethostname(host, sizeof(host) - 1) == 0 ? host : "";
}

static int bad_value(const char *option, const char *value)
{
    fprintf(stderr, "crustd: --%s: unknown value %s\n", option, value);
    return EXIT_USAGE;
}

static const struct option options[] = {
    {"config", required_argument, NULL, 'c'},
    {"root", required_argument, NULL, 'r'},
    {"check-config", no_argument, NULL, 'k'},
    {"once", no_argument, NULL, 'o'},
    {"log-level", required_argument, NULL, 'l'},
    {"log-format", required_argument, NULL, 'f'},
    {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

enum { GO_ON = -1 };

/* GO_ON, or the exit code of a program that has nothing more to do. */
static int take_option(int option, struct arguments *arguments)
{
    switch (option) {
    case 'c':
        arguments->config = optarg;
        return GO_ON;
    case 'r':
        arguments->root = optarg;
        return GO_ON;
    case 'k':
        arguments->check_config = true;
        return GO_ON;
    case 'o':
        arguments->once = true;
        return GO_ON;
    case 'l':
        return log_level_from_name(optarg, &arguments->log_level) < 0
                   ? bad_value("log-level", optarg)
                   : GO_ON;
    case 'f':
        return log_format_from_name(optarg, &arguments->log_format) < 0
                   ? bad_value("log-format", optarg)
                   : GO_ON;
    case 'v':
        printf("crustd %s\n", CRUST_VERSION);
        return 0;
    case 'h':
        fputs(usage, stdout);
        return 0;
    default:
        fputs("Try 'crustd --help'.\n", stderr);
        return EXIT_USAGE;
    }
}

int arguments_parse(int argc, char **argv, struct arguments *ret_arguments)
{
    struct arguments arguments = {
        .root = config_root_of_environment(),
        .config = config_file_of_environment(),
        .node = node_name(),
        .log_level = LOG_INFO,
        .log_format = LOG_LOGFMT,
    };
    int option, code = GO_ON;

    while (code == GO_ON && (option = getopt_long(argc, argv, "", options, NULL)) != -1)
        code = take_option(option, &arguments);
    if (code != GO_ON)
        return code;
    if (optind < argc) {
        fprintf(stderr, "crustd: unexpected argument %s\n", argv[optind]);
        return EXIT_USAGE;
    }
    *ret_arguments = arguments;
    return GO_ON;
}
