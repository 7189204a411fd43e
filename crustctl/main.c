/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - crustctl: reads the command line, runs one command, returns its exit code. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "crustctl/command.h"
#include "crustctl/display.h"
#include "lib/cleanup.h"
#include "lib/log.h"

enum { SUMMARY_COLUMN = 31 };

static void print_line(FILE *stream, const struct command *command)
{
    cleanup(buffer_done) struct buffer line = BUFFER_INIT(4096);
    char name[64], lead[sizeof(name) + SUMMARY_COLUMN];

    (void)snprintf(name, sizeof(name), "%s %s", command->name, command->operands);
    (void)snprintf(lead, sizeof(lead), "  %-*s", SUMMARY_COLUMN - 2, name);
    (void)display_append_wrapped(&line, command->summary, lead, SUMMARY_COLUMN, display_columns());
    (void)fputs(buffer_text(&line), stream);
}

static void print_usage(FILE *stream)
{
    (void)fputs("usage: crustctl [--root DIR] [--config FILE] [-o text|wide|json] COMMAND\n\n"
                "Shows what crustd knows about the volumes of micro-VMs on this node, and why.\n\n",
                stream);
    for (const struct command *command = commands; command->name; command++)
        print_line(stream, command);
    (void)fputs("\n"
                "VOL is a volume path, a metadata key, a PV name, a CSI volume handle or a\n"
                "volume_id, which '#7' is in any case.\n"
                "  --root DIR     the node's root is DIR ($" CONFIG_ROOT_VARIABLE ")\n"
                "  --config FILE  the daemon's configuration ($" CONFIG_FILE_VARIABLE ", or\n"
                "                 " CONFIG_DEFAULT_FILE ")\n"
                "  -o FORMAT      text, wide (of volumes), or json: the audit views' columns\n"
                "  --version, --help; COMMAND --help describes one command\n\n"
                "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 daemon not reachable, 5\n"
                "refused or blocked until somebody changes something, 6 not now: ask again.\n",
                stream);
}

static void print_command_help(const struct command *command)
{
    (void)printf("usage: crustctl %s%s%s%s\n\n%s\n%s", command->name, *command->operands ? " " : "",
                 command->operands, command->options ? " [options]" : "", command->summary,
                 command->help ? command->help : "");
}

static bool is_of_family(const struct command *command, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(command->name, name, length) == 0 && command->name[length] == ' ';
}

static bool has_family(const char *name)
{
    for (const struct command *command = commands; command->name; command++)
        if (is_of_family(command, name))
            return true;
    return false;
}

/* "fs" has no meaning by itself: what may follow it. */
static void print_family(FILE *stream, const char *name)
{
    (void)fprintf(stream, "crustctl %s is one of\n", name);
    for (const struct command *command = commands; command->name; command++)
        if (is_of_family(command, name))
            print_line(stream, command);
}

static int refuse(const char *text)
{
    (void)fprintf(stderr, "crustctl: %s\nTry crustctl --help.\n", text);
    return EXIT_USAGE;
}

/* The command that people mean by another word, or by the beginning of its name; NULL: none. */
static const char *meant_by(const char *word)
{
    static const char *const others[][2] = {
        {"events", "journal"},  {"log", "journal"},   {"logs", "journal"}, {"vol", "volumes"},
        {"ls", "volumes"},      {"list", "volumes"},  {"get", "volumes"},  {"describe", "explain"},
        {"why", "explain"},     {"expand", "resize"}, {"grow", "resize"},  {"check", "doctor"},
        {"history", "resizes"}, {"pods", "sandboxes"}};

    for (size_t i = 0; i < array_length(others); i++)
        if (strcmp(others[i][0], word) == 0)
            return others[i][1];
    for (const struct command *command = commands; command->name; command++)
        if (strlen(word) > 1 && strncmp(command->name, word, strlen(word)) == 0)
            return command->name;
    return NULL;
}

/* "crust burn": the second word is wrong. */
static int refuse_command(const struct options *options)
{
    const bool is_family = has_family(options->command);
    const bool has_word = is_family && options->operands > 0;

    if (!is_family || has_word)
        (void)fprintf(stderr, "crustctl: there is no command \"%s%s%s\"\n", options->command,
                      has_word ? " " : "", has_word ? options->operand[0] : "");
    if (is_family)
        print_family(stderr, options->command);
    else if (meant_by(options->command))
        (void)fprintf(stderr, "Did you mean \"%s\"?\n", meant_by(options->command));
    else
        (void)fputs("Try crustctl --help.\n", stderr);
    return EXIT_USAGE;
}

/* --help, or the command help. */
static int show_help(const struct options *options, const struct command *command)
{
    if (command)
        print_command_help(command);
    else if (!options->command)
        print_usage(stdout);
    else if (has_family(options->command) && options->operands == 0)
        print_family(stdout, options->command);
    else
        return refuse_command(options);
    return EXIT_DONE;
}

static int run(const struct command *command, const struct options *options)
{
    struct session session = {
        .options = options, .width = display_columns(), .table_width = display_table_columns()};
    struct error error = {0};
    int code;

    buffer_init(&session.out, 256 * 1024 * 1024);
    if (source_open(options->root, options->config_file, &session.source, &error) < 0) {
        (void)fprintf(stderr, "crustctl: %s\n", error.text);
        return EXIT_USAGE;
    }
    /* A daemon that runs keeps the configuration that it has, and a probe asks after the daemon.
     * The doctor reports the fault itself. */
    if (source_config_fault(session.source) && command->run != command_doctor)
        (void)fprintf(stderr, "crustctl: %s; going on without this file\n",
                      source_config_fault(session.source));
    code = session_end(&session, command->run(&session));
    buffer_done(&session.out);
    source_close(session.source);
    return code;
}

/* kata-runtime knows no other failure than 1. */
static int exit_code(const struct command *command, int code)
{
    static const char family[] = "direct-volume ";

    return code != EXIT_DONE && strncmp(command->name, family, strlen(family)) == 0 ? EXIT_FAILED
                                                                                    : code;
}

/* "help resize" is "resize --help". */
static void ask_for_help(struct options *options)
{
    options->help = true;
    options->command = options->operands > 0 ? options->operand[0] : NULL;
    if (options->operands > 0)
        memmove(options->operand, options->operand + 1, --options->operands * sizeof(char *));
}

int main(int argc, char *argv[])
{
    const struct command *command;
    struct options options;
    struct error error = {0};

    display_init();
    log_configure(LOG_ERROR, LOG_LOGFMT); /* that its own loop waited is no warning to anybody */
    if (options_parse(argc, argv, &options, &error) < 0)
        return refuse(error.text);
    if (options.version) {
        (void)printf("crustctl %s\n", CRUST_VERSION);
        return EXIT_DONE;
    }
    if (options.command && strcmp(options.command, "help") == 0)
        ask_for_help(&options);
    command = command_choose(&options);
    if (options.help)
        return show_help(&options, command);
    if (!options.command) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (!command)
        return refuse_command(&options);
    if (command_check(command, &options, &error) < 0)
        return exit_code(command, refuse(error.text));
    return exit_code(command, run(command, &options));
}
