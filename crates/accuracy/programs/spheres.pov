// Mirrors and glass over a chequered floor.
camera { location <0, 3, -9> look_at <0, 1, 0> }
light_source { <6, 12, -8> rgb 1 }
light_source { <-8, 9, -3> rgb 0.5 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#declare I = -4;
#while (I < 5)
  #declare J = 0;
  #while (J < 6)
    sphere { <I, 0.6 + 0.3 * mod(I * J, 3), J> 0.5
      pigment { rgbf <0.9, 0.8, 0.7, 0.5> } finish { reflection 0.4 phong 1 } interior { ior 1.4 } }
    #declare J = J + 1;
  #end
  #declare I = I + 1;
#end
