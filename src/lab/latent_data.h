/* latent_data.h - sequences of one latent variable each, inside the bounds of X Assumption 5.2.
 *
 *     z ~ N(0, I_d),   x_l = (z + N(0, I_d)) / max(1, |z + N|),  |x_l| <= 1;   y = 0.3 tanh z_1 + 0.2 s,  s = -1 or 1 evenly,  |y| <= 1/2
 *
 * so that for any f of the tokens  E (y - f)^2 = HARK_LAB_LABEL_NOISE + E (0.3 tanh z_1 - f)^2.
 */
#ifndef HARK_LAB_LATENT_DATA_H
#define HARK_LAB_LATENT_DATA_H

#include "lab/lab.h"

#define HARK_LAB_LABEL_NOISE (0.2 * 0.2) /* variance of y given z */

typedef struct hark_lab_latent_data {
  int64_t count, length, dim;
  double *tokens; /* [count, length, dim] */
  double *means;  /* [count], E[y | z] */
  double *y;      /* [count] */
} hark_lab_latent_data;

/* Memory of the lab for the extents that are set. */
HARK_MUST_CHECK hark_status hark_lab_make_latent_data(hark_lab *lab, hark_lab_latent_data *data);

/* The first `count` sequences, of streams stream .. stream + 2. */
void hark_lab_draw_latent_data(const hark_lab *lab, uint32_t stream, int64_t count, hark_lab_latent_data *data);

#endif
