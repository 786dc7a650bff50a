# Draws pytorch.svg from pytorch.dat, in this folder; the second command adds the style for dark screens that hark's own pictures have:
#   gnuplot pytorch.gp
#   sed -i '0,/^>/s//>\n'"$(sed -n '/<style>/p' length.svg | sed 's/[&/]/\\&/g')"'/' pytorch.svg
set terminal svg size 1000,620 background 'white' noenhanced font 'sans,16'
set output 'pytorch.svg'
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 border -1
set boxwidth 0.9
set yrange [0:100]
set ylabel 'fraction of the multiply-add peak (%)'
set xtics rotate by -35 nomirror
set grid ytics
set key outside bottom center horizontal
set rmargin 9
set title 'Attention, forward and backward, float32 (tokens, features of a head)'
plot 'pytorch.dat' using ($2 * $3):xtic(1) title 'hark' linecolor rgb '#1f5fa8', '' using 2 title 'PyTorch, scaled_dot_product_attention' linecolor rgb '#d98032'
