/* SPDX-License-Identifier: Apache-2.0 */
/* kata_program.c - judges the path of the VMM's program: with a wrong one, no pod of the
 * configuration starts. */
#include "doctor/kata_program.h"

#include <stdio.h>
#include <string.h>

#define INSTALL_CRUST                                                                              \
    "Install it (make install; in a cluster the component config/deploy/crust-qemu), or take the " \
    "path out of "

static const char *what_is_wrong(enum program_state state)
{
    return state == PROGRAM_NOT_EXECUTABLE ? "is no program that can be run" : "leads nowhere";
}

static void say_unseen(const struct kata_table *table, const char *runtimes, const char *what,
                       struct findings *findings)
{
    findings_add(findings, FINDING_WARNING, "kata_program", table->path_file,
                 "Give crustd CAP_SYS_PTRACE and the node's processes (hostPID), or mount it",
                 "%s: whether %s is there cannot be told from here; if it is not, no pod of these "
                 "starts",
                 runtimes, what);
}

static void judge_path(const struct kata_table *table, const struct program *program,
                       const char *runtimes, struct findings *findings)
{
    char remedy[2 * KATA_FILE_BYTES];

    (void)snprintf(remedy, sizeof(remedy), "%s%s",
                   program->is_crust ? INSTALL_CRUST : "Install it, or correct the path in ",
                   table->path_file);
    if (program->state == PROGRAM_UNSEEN)
        say_unseen(table, runtimes, table->path, findings);
    else
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file, remedy,
                     "%s: path = %s %s: no pod of these starts", runtimes, table->path,
                     what_is_wrong(program->state));
}

static void judge_crust(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings)
{
    if (program->qemu == PROGRAM_UNSEEN) {
        say_unseen(table, runtimes, program->qemu_name, findings);
    } else if (program->qemu != PROGRAM_THERE) {
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "Put a copy of crust-qemu beside that QEMU, named crust- and QEMU's name, and "
                     "name the copy",
                     "%s: %s finds no %s beside itself, in /opt/kata/bin or in /usr/bin: no pod of "
                     "these starts",
                     runtimes, table->path, program->qemu_name);
    } else if (!program->has_directory) {
        findings_add(findings, FINDING_ERROR, "kata_program", table->path_file,
                     "systemd-tmpfiles --create crustd.conf, which makes it root's with mode 0700; "
                     "in a cluster the component config/deploy/crust-qemu does",
                     "%s: crust-qemu adds no monitor, for /run/crustd/qemu is not there or not "
                     "root's alone",
                     runtimes);
    }
    if (program->has_other_label)
        findings_add(findings, FINDING_WARNING, "kata_program", table->path,
                     "chcon --reference=QEMU CRUST-QEMU, and semanage fcontext, so that it lasts",
                     "%s: it and %s have different SELinux types; where SELinux is enforced Kata "
                     "may not be allowed to start it, and then no pod of these starts",
                     runtimes, program->qemu_name);
}

void kata_program_judge(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings)
{
    if (program->state == PROGRAM_THERE && program->is_crust)
        judge_crust(table, program, runtimes, findings);
    else if (program->state != PROGRAM_THERE && program->state != PROGRAM_UNNAMED)
        judge_path(table, program, runtimes, findings);
}

void kata_program_examine_valid(int root, const struct kata_table *table, const char *runtimes,
                                struct findings *findings)
{
    for (unsigned i = 0; i < table->valid_paths; i++) {
        const char *path = table->valid_path[i];

        if (path[0] == '/' && !strpbrk(path, "*?[{\\") && strcmp(path, table->path) != 0 &&
            program_examine(root, path) == PROGRAM_ABSENT)
            findings_add(findings, FINDING_NOTE, "kata_program", table->path_file,
                         "Correct valid_hypervisor_paths",
                         "%s: valid_hypervisor_paths names %s, which is not there: a pod whose "
                         "annotation asks for it does not start",
                         runtimes, path);
    }
}
