/* Readiness for systemd (Type=notify): sd_notify's protocol, a datagram to $NOTIFY_SOCKET. Nothing without it. */
#ifndef REINS_NOTIFY_H
#define REINS_NOTIFY_H

void notify_ready(void);
void notify_stopping(void);

#endif
