/* SPDX-License-Identifier: Apache-2.0 */
/* permit.h - what crustd may do to a volume (the stricter of the configuration and the volume's own
 * policy), and which VMMs it may notify. */
#pragma once

#include "model/hypervisor.h"
#include "model/volume.h"

struct config;
struct store_volume;

enum resize_policy permit_of(const struct config *config, const struct store_volume *volume);

/* Why the configuration forbids notifying VMMs of this kind of a new size, a static text; NULL: it
 * is allowed. */
const char *permit_find_forbidding(const struct config *config, enum hypervisor_kind kind);
