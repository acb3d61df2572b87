/* FUSEDNORM_API marks what the shared library exports; all else is hidden. */
#ifndef FUSEDNORM_EXPORT_H_
#define FUSEDNORM_EXPORT_H_

#define FUSEDNORM_API __attribute__((visibility("default")))

#endif /* FUSEDNORM_EXPORT_H_ */
