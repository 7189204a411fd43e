/* SPDX-License-Identifier: Apache-2.0 */
/* crust_users.h - which files of Kata's configurations need crust-qemu. Private to doctor/. */
#pragma once

#include "doctor/finding.h"

/* Every file in the places of Kata's configurations, in use or not, and those that the container
 * engine names elsewhere. A file that cannot be read counts, because its content is not known. */
void crust_users_find(int root, struct findings *findings);
