/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h - which sandbox a volume belongs to: facts about its records in, the fate of its binding
 * out.
 *
 * Pure, as decide.h is. docs/states.md ("Binding") is its table, and every cell is tested. A
 * binding is a row of audit_mappings: one stay of the volume, on one device, in one sandbox.
 */
#pragma once

#include <stdbool.h>

/* Live sandboxes that have the volume by their records or by its own. */
enum bind_sandbox { BIND_NO_SANDBOX, BIND_ONE_SANDBOX, BIND_SEVERAL_SANDBOXES };

/* What the volume's path leads to. */
enum bind_device { BIND_DEVICE_MISSING, BIND_DEVICE_SUITABLE, BIND_DEVICE_UNSUITABLE };

/* The binding that is open. */
enum bind_present { BIND_NONE, BIND_HERE, BIND_ELSEWHERE };

/* The binding's device against the one that the path leads to now. */
enum bind_disk {
    BIND_SAME_DISK,
    BIND_REPLACED_DISK, /* another one under the same number: the VMM goes on holding the old one */
    BIND_ANOTHER_DISK,
};

struct bind_facts {
    bool present; /* its metadata can be believed */
    enum bind_sandbox sandbox;
    enum bind_device device;
    enum bind_present binding;
    enum bind_disk disk;
    bool contradicted; /* the runtime was given this path while that led to another device */
};

enum bind_action {
    BIND_NOTHING,
    BIND_OPEN, /* a new binding, in place of the one that is open, if any */
    BIND_CLOSE,
    BIND_KEEP, /* it is bound as it was: only what is known about it may be better */
};

struct binding {
    enum bind_action action;
    bool mismatch; /* the VMM has another device than the path leads to */
};

struct binding bind_decide(const struct bind_facts *facts);

const char *bind_action_name(enum bind_action action);
