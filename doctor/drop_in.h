/* SPDX-License-Identifier: Apache-2.0 */
/* drop_in.h - Kata's drop-ins that come with crustd. Private to doctor/. */
#pragma once

enum { DROP_IN_BYTES = 512 };

/* Where crust-qemu.toml lies, which serves both runtimes: share/crustd/kata below what this program
 * was installed to (/usr; in a container, the image's), else where crustd's source has it. */
void drop_in_find(char ret_path[static DROP_IN_BYTES]);
